// Reads the JSON of an archive with checks: a missing entry, or one of another kind, is an error that names it.
#pragma once

#include <string_view>

#include "io/json.h"
#include "mica/core/options.h"
#include "mica/core/scalar.h"

namespace mica::program {

using io::Json;

[[noreturn]] void damaged(std::string_view what);
const Json& member(const Json& object, std::string_view key, Json::Kind kind);
const Json* member_if(const Json& object, std::string_view key);  // null where it is absent or null
const std::string& text_member(const Json& object, std::string_view key);

// A union of the schema is an object with one entry, whose key says which kind it is.
struct Union {
  const std::string& kind;
  const Json& value;
};
Union only(const Json& object);

int64_t whole_number(const Json& value);
double real_number(const Json& value);  // "Infinity", "-Infinity" and "NaN" are strings
bool truth(const Json& value);
DType dtype_of_number(const Json& value);
MemoryFormat memory_format_of_number(const Json& value);
Layout layout_of_number(const Json& value);
Device device_of(const Json& value);

}  // namespace mica::program
