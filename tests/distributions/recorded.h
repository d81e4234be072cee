// What torch recorded for distributions (tests/recorded/distributions.json): the file that holds the Python package,
// too.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "mica/ops.h"

namespace mica::testing {

// JSON of objects, lists, strings, numbers and truth values, as Python's json writes it.
struct Recorded {
  enum class Kind : uint8_t { Null, Number, Text, List, Object };
  Kind kind = Kind::Null;
  double number = 0;  // also a truth value
  std::string text;
  std::vector<Recorded> items;
  std::vector<std::pair<std::string, Recorded>> entries;

  const Recorded* find(const std::string& key) const {
    for (const auto& [name, value] : entries)
      if (name == key) return &value;
    return nullptr;
  }
  const Recorded& at(const std::string& key) const {
    const Recorded* found = find(key);
    if (!found) throw std::out_of_range("nothing is recorded for " + key);
    return *found;
  }
  bool is_text(const char* other) const { return kind == Kind::Text && text == other; }
  // A number; Python's repr of one that JSON has no word for is a text.
  double value() const {
    if (kind == Kind::Number) return number;
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    return text == "inf" ? infinity : -infinity;
  }
};

class RecordedReader {
 public:
  explicit RecordedReader(std::string text) : text_(std::move(text)) {}
  Recorded read() {
    Recorded value;
    switch (next()) {
      case '{':
        value.kind = Recorded::Kind::Object;
        for (++at_; next() != '}'; skip(',')) {
          std::string key = string();
          skip(':');
          value.entries.emplace_back(std::move(key), read());
        }
        ++at_;
        break;
      case '[':
        value.kind = Recorded::Kind::List;
        for (++at_; next() != ']'; skip(',')) value.items.push_back(read());
        ++at_;
        break;
      case '"':
        value.kind = Recorded::Kind::Text;
        value.text = string();
        break;
      case 't':
      case 'f':
      case 'n': {
        value.kind = text_[at_] == 'n' ? Recorded::Kind::Null : Recorded::Kind::Number;
        value.number = text_[at_] == 't';
        while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) ++at_;
        break;
      }
      default: {
        value.kind = Recorded::Kind::Number;
        char* end = nullptr;
        value.number = std::strtod(text_.c_str() + at_, &end);
        if (end == text_.c_str() + at_) throw std::runtime_error("no JSON at " + std::to_string(at_));
        at_ = static_cast<size_t>(end - text_.c_str());
      }
    }
    return value;
  }

 private:
  char next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.at(at_);
  }
  void skip(char c) {
    if (next() == c) ++at_;
  }
  std::string string() {
    std::string result;
    next();
    for (++at_; text_.at(at_) != '"'; ++at_) {
      if (text_[at_] != '\\') {
        result += text_[at_];
        continue;
      }
      const char escaped = text_.at(++at_);
      result += escaped == 'n' ? '\n' : escaped;
    }
    ++at_;
    return result;
  }

  std::string text_;
  size_t at_ = 0;
};

inline const Recorded& recorded_distributions() {
  static const Recorded file = [] {
    std::ifstream in(MICA_SOURCE_DIRECTORY "/tests/recorded/distributions.json");
    std::stringstream text;
    text << in.rdbuf();
    return RecordedReader(text.str()).read();
  }();
  return file;
}

// A tensor beside [dtype, shape, numbers].
inline void expect_recorded(const Tensor& ours, const Recorded& theirs, double tolerance, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(theirs.items.size(), 3u) << theirs.text;
  EXPECT_EQ("torch." + std::string(name(ours.dtype())), theirs.items[0].text);
  std::vector<int64_t> shape;
  for (const Recorded& size : theirs.items[1].items) shape.push_back(static_cast<int64_t>(size.number));
  ASSERT_EQ(ours.sizes().vec(), shape);
  const Tensor flat = ours.detach().reshape({-1}).to(DType::Float64);
  const std::vector<Recorded>& numbers = theirs.items[2].items;
  ASSERT_EQ(static_cast<size_t>(flat.numel()), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double a = flat.data_ptr<double>()[i], b = numbers[i].value();
    const bool same = std::isnan(b) ? std::isnan(a) : a == b || std::abs(a - b) <= tolerance * (1 + std::abs(b));
    EXPECT_TRUE(same) << a << " for " << b << " at " << i;
  }
}

}  // namespace mica::testing
