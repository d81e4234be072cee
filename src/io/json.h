// Reads JSON as headers of tensor files and archives of programs use it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mica::io {

struct Json {
  enum class Kind : uint8_t { Null, Bool, Number, Real, String, Array, Object };
  Kind kind = Kind::Null;
  int64_t number = 0;  // a whole number, or a bool
  double real = 0;     // a number with a fraction or an exponent, or one that is larger than int64
  std::string text;
  std::vector<Json> items;                            // of an array
  std::vector<std::pair<std::string, Json>> entries;  // of an object, in order

  const Json* find(std::string_view key) const;
};

// parse_json throws Error where the text is not JSON, nests deeper than `deepest`, or holds numbers that are not whole,
// unless they are allowed.
struct JsonLimits {
  int deepest = 16;
  bool reals = false;
};
Json parse_json(std::string_view text, const JsonLimits& limits = {});
std::string quoted_json(std::string_view text);

}  // namespace mica::io
