// JSON as headers of tensor files use it: objects, arrays, strings, whole numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mica::io {

struct Json {
  enum class Kind : uint8_t { Null, Bool, Number, String, Array, Object };
  Kind kind = Kind::Null;
  int64_t number = 0;
  std::string text;
  std::vector<Json> items;                            // of an array
  std::vector<std::pair<std::string, Json>> entries;  // of an object, in order

  const Json* find(std::string_view key) const;
};

// Throws Error where the text is no JSON, nests deeper than headers do, or holds numbers that are not whole.
Json parse_json(std::string_view text);
std::string quoted_json(std::string_view text);

}  // namespace mica::io
