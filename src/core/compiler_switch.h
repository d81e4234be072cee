// The compiler's settings in the environment.
#pragma once

#include <cstdlib>
#include <string_view>

namespace mica::recording {

// A part of the compiler is on unless the variable is "0".
inline bool is_switched_on(const char* variable) {
  const char* said = std::getenv(variable);
  return !said || std::string_view(said) != "0";
}

}  // namespace mica::recording
