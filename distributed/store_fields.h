// Fields of the store's requests and answers.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>

namespace mica::distributed {

struct FieldWriter {
  std::string bytes;
  void byte(uint8_t value) { bytes.push_back(static_cast<char>(value)); }
  void number(int64_t value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(const std::string& value) {
    number(static_cast<int64_t>(value.size()));
    bytes += value;
  }
  template <typename Texts>
  void texts(const Texts& values) {
    number(static_cast<int64_t>(values.size()));
    for (const auto& each : values) text(each);
  }
};

// Reads fields. Throws std::out_of_range where a field is incomplete, since anything may come over a socket.
struct FieldReader {
  const std::string& bytes;
  size_t at = 0;
  const char* take(uint64_t size) {
    if (size > bytes.size() - at) throw std::out_of_range("a field is not whole");
    const char* begin = bytes.data() + at;
    at += size;
    return begin;
  }
  uint8_t byte() { return static_cast<uint8_t>(*take(1)); }
  int64_t number() {
    int64_t value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const uint64_t size = static_cast<uint64_t>(number());
    return {take(size), size};
  }
  std::vector<std::string> texts() {
    const uint64_t count = static_cast<uint64_t>(number());
    if (count > bytes.size()) throw std::out_of_range("more texts than bytes");
    std::vector<std::string> values;
    for (uint64_t i = 0; i < count; ++i) values.push_back(text());
    return values;
  }
};

constexpr uint32_t kLargestFrame = 1u << 30;

inline std::string frame(const std::string& payload) {
  if (payload.size() > kLargestFrame) throw std::length_error("a value of more than 1 GiB does not fit a store");
  const uint32_t size = static_cast<uint32_t>(payload.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + payload;
}

}  // namespace mica::distributed
