// Reads numbers and pieces off the bytes that the fuzzer gives; when they run out, zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mica/error.h"

namespace mica::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }

  template <class T>
  T number() {
    T value{};
    const size_t n = std::min(sizeof value, left_.size());
    std::memcpy(&value, left_.data(), n);
    left_.remove_prefix(n);
    return value;
  }

  // From 0 up to, not including, `end`.
  int64_t below(int64_t end) { return number<uint8_t>() % end; }

  // Small numbers mostly, and now and then any number at all.
  int64_t any_number() {
    const auto small = number<int8_t>();
    return small == -128 ? number<int64_t>() : small;
  }

  std::string_view rest() { return std::exchange(left_, {}); }

 private:
  std::string_view left_;
};

// Runs the body; an Error is the answer to bad input, anything else is a finding.
template <class Body>
int expect_no_crash(Body body) {
  try {
    body();
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace mica::fuzz
