// Functions that the printing of modules shares.
#pragma once

#include <optional>
#include <string>

#include "mica/error.h"

namespace mica::nn {

std::string indented(std::string lines);  // every line but the first, by two spaces

template <class T>
std::string or_none(const std::optional<T>& value) {
  return value ? cat(*value) : "None";
}

// "text, inplace=True" for layers that write into their input.
inline std::string with_inplace(std::string text, bool inplace) {
  if (!inplace) return text;
  return text.empty() ? "inplace=True" : text + ", inplace=True";
}

}  // namespace mica::nn
