// Values as Python writes them, for the printing of modules.
#pragma once

#include <charconv>
#include <string>

namespace mica::nn {

inline const char* truth(bool value) { return value ? "True" : "False"; }

inline std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  std::string shortest(text, end);
  const bool is_integer = shortest.find_first_not_of("-0123456789") == std::string::npos;
  return is_integer ? shortest + ".0" : shortest;
}

}  // namespace mica::nn
