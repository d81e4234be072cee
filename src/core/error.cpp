#include "mica/error.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "core/error_advice.h"

namespace mica {

void fail(ErrorKind kind, std::string message) {
  message += advice_for(message);
  throw Error(kind, std::move(message));
}

void append_to(std::string& s, double v) {
  if (std::isnan(v)) {
    s += "nan";
    return;
  }
  if (std::isinf(v)) {
    s += v < 0 ? "-inf" : "inf";
    return;
  }
  char text[32];
  const char* end = std::to_chars(text, text + sizeof text, v, std::chars_format::scientific).ptr;
  std::string_view shortest(text, static_cast<size_t>(end - text));
  if (shortest.front() == '-') {
    s += '-';
    shortest.remove_prefix(1);
  }
  const size_t e = shortest.find('e');
  int exponent = 0;
  const char* exponent_digits = shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_digits, shortest.data() + shortest.size(), exponent);

  // Python writes the digits out while the point stays within 16 places of them, and an exponent otherwise.
  if (exponent < -4 || exponent >= 16) {
    s += shortest;
    return;
  }
  std::string digits(1, shortest[0]);
  if (e > 2) digits += shortest.substr(2, e - 2);
  if (exponent < 0) {
    s += "0.";
    s.append(static_cast<size_t>(-exponent - 1), '0');
    s += digits;
    return;
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole + 1) digits.append(whole + 1 - digits.size(), '0');
  s.append(digits, 0, whole);
  s += '.';
  s.append(digits, whole);
}

}  // namespace mica
