#include "io/json.h"

#include <charconv>

#include "mica/error.h"

namespace mica::io {

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}

namespace {

class Parser {
 public:
  Parser(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  Json whole() {
    Json value = parse(0);
    skip_space();
    if (at_ != text_.size()) wrong("more text");
    return value;
  }

 private:
  [[noreturn]] void wrong(const char* what) const { fail(cat("the text is no JSON: ", what, " at byte ", at_)); }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  char peek() {
    skip_space();
    if (at_ == text_.size()) wrong("its end");
    return text_[at_];
  }
  void expect(char c) {
    if (peek() != c) wrong("another character");
    ++at_;
  }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json parse(int depth) {
    if (depth > limits_.deepest) wrong("too deep a nesting");
    Json value;
    switch (peek()) {
      case '{':
        ++at_;
        value.kind = Json::Kind::Object;
        if (peek() == '}') return ++at_, value;
        for (;;) {
          peek();
          std::string key = string();
          expect(':');
          value.entries.emplace_back(std::move(key), parse(depth + 1));
          if (peek() == '}') return ++at_, value;
          expect(',');
        }
      case '[':
        ++at_;
        value.kind = Json::Kind::Array;
        if (peek() == ']') return ++at_, value;
        for (;;) {
          value.items.push_back(parse(depth + 1));
          if (peek() == ']') return ++at_, value;
          expect(',');
        }
      case '"':
        value.kind = Json::Kind::String;
        value.text = string();
        return value;
      default:
        break;
    }
    if (take("true")) {
      value.kind = Json::Kind::Bool;
      value.number = 1;
    } else if (take("false")) {
      value.kind = Json::Kind::Bool;
    } else if (!take("null")) {
      read_number(value);
    }
    return value;
  }

  void read_number(Json& value) {
    size_t end = at_;
    while (end < text_.size() && std::string_view("+-0123456789.eE").find(text_[end]) != std::string_view::npos) ++end;
    const std::string_view digits = text_.substr(at_, end - at_);
    const bool is_long = digits.size() > 18, has_fraction = digits.find_first_of(".eE") != std::string_view::npos;
    if (limits_.reals && (is_long || has_fraction)) {
      int64_t whole = 0;
      if (!has_fraction) {
        const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
        if (error == std::errc() && last == digits.data() + digits.size()) {
          value.kind = Json::Kind::Number;
          value.number = whole;
          at_ = end;
          return;
        }
      }
      const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value.real);
      if (error != std::errc() || last != digits.data() + digits.size()) wrong("no number");
      value.kind = Json::Kind::Real;
      at_ = end;
      return;
    }
    value.kind = Json::Kind::Number;
    value.number = number();
  }

  int64_t number() {
    const bool negative = take("-");
    int64_t value = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
        wrong("too large a number");
    if (at_ == begin || (at_ < text_.size() && std::string_view(".eE").find(text_[at_]) != std::string_view::npos))
      wrong("no whole number");
    return negative ? -value : value;
  }

  std::string string() {
    expect('"');
    std::string value;
    for (;;) {
      if (at_ == text_.size()) wrong("its end within a string");
      const char c = text_[at_++];
      if (c == '"') return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      if (at_ == text_.size()) wrong("its end within a string");
      const char escaped = text_[at_++];
      if (escaped == 'u') {
        append_utf8(value, code_point());
      } else if (const size_t place = std::string_view("\"\\/bfnrt").find(escaped); place != std::string_view::npos) {
        value += "\"\\/\b\f\n\r\t"[place];
      } else {
        wrong("an unknown escape");
      }
    }
  }

  uint32_t four_digits() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const size_t digit = at_ < text_.size() ? std::string_view("0123456789abcdef").find(text_[at_] | 0x20) : 16;
      if (digit >= 16) wrong("an unknown escape");
      value = value * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return value;
  }

  uint32_t code_point() {
    const uint32_t first = four_digits();
    if (first < 0xD800 || first > 0xDBFF || !take("\\u")) return first;
    const uint32_t second = four_digits();
    if (second < 0xDC00 || second > 0xDFFF) wrong("half a character");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  static void append_utf8(std::string& s, uint32_t c) {
    const auto put = [&](uint32_t byte) { s += static_cast<char>(byte); };
    if (c < 0x80) return put(c);
    if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
    if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }

  std::string_view text_;
  JsonLimits limits_;
  size_t at_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) { return Parser(text, limits).whole(); }

std::string quoted_json(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char digits[] = "0123456789abcdef";
      result += "\\u00";
      result += digits[c >> 4];
      result += digits[c & 15];
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace mica::io
