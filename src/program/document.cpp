#include "program/document.h"

#include <limits>

#include "mica/error.h"

namespace mica::program {

void damaged(std::string_view what) { fail(cat("the archive is damaged: ", what)); }

const Json* member_if(const Json& object, std::string_view key) {
  if (object.kind != Json::Kind::Object) damaged(cat("what should have a member ", key, " is no object"));
  const Json* const found = object.find(key);
  return found && found->kind != Json::Kind::Null ? found : nullptr;
}

const Json& member(const Json& object, std::string_view key, Json::Kind kind) {
  const Json* const found = member_if(object, key);
  if (!found || found->kind != kind) damaged(cat("there is no valid ", key));
  return *found;
}

const std::string& text_member(const Json& object, std::string_view key) {
  return member(object, key, Json::Kind::String).text;
}

Union only(const Json& object) {
  if (object.kind != Json::Kind::Object || object.entries.size() != 1) damaged("a union has not one entry");
  return {object.entries[0].first, object.entries[0].second};
}

int64_t whole_number(const Json& value) {
  if (value.kind != Json::Kind::Number) damaged("what should be a whole number is none");
  return value.number;
}

double real_number(const Json& value) {
  if (value.kind == Json::Kind::Real) return value.real;
  if (value.kind == Json::Kind::Number) return static_cast<double>(value.number);
  if (value.kind == Json::Kind::String) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (value.text == "Infinity") return kInfinity;
    if (value.text == "-Infinity") return -kInfinity;
    if (value.text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  damaged("what should be a number is none");
}

bool truth(const Json& value) {
  if (value.kind != Json::Kind::Bool) damaged("what should be true or false is neither");
  return value.number != 0;
}

// The numbers are the public schema's, and start with one.
DType dtype_of_number(const Json& value) {
  switch (const int64_t number = whole_number(value)) {
    // clang-format off
    case 1: return DType::UInt8;
    case 2: return DType::Int8;
    case 3: return DType::Int16;
    case 4: return DType::Int32;
    case 5: return DType::Int64;
    case 6: return DType::Float16;
    case 7: return DType::Float32;
    case 8: return DType::Float64;
    case 9: return DType::Complex32;
    case 10: return DType::Complex64;
    case 11: return DType::Complex128;
    case 12: return DType::Bool;
    case 13: return DType::BFloat16;
    case 28: return DType::UInt16;
    case 29: return DType::Float8_e4m3fn;
    case 30: return DType::Float8_e5m2;
    case 31: return DType::Float8_e4m3fnuz;
    case 32: return DType::Float8_e5m2fnuz;
    case 33: return DType::Float8_e8m0fnu;
    case 34: return DType::UInt32;
    case 35: return DType::UInt64;
    default: damaged(cat("there is no dtype ", number));
      // clang-format on
  }
}

MemoryFormat memory_format_of_number(const Json& value) {
  constexpr MemoryFormat formats[] = {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast,
                                      MemoryFormat::ChannelsLast3d, MemoryFormat::Preserve};
  const int64_t number = whole_number(value);
  if (number < 1 || number > 4) damaged(cat("there is no memory format ", number));
  return formats[number - 1];
}

Layout layout_of_number(const Json& value) {
  switch (const int64_t number = whole_number(value)) {
    // clang-format off
    case 1: return Layout::SparseCoo;
    case 2: return Layout::SparseCsr;
    case 3: return Layout::SparseCsc;
    case 4: return Layout::SparseBsr;
    case 5: return Layout::SparseBsc;
    case 7: return Layout::Strided;
    default: damaged(cat("there is no layout ", number));
      // clang-format on
  }
}

Device device_of(const Json& value) {
  const std::string& type = text_member(value, "type");
  const Json* const index = member_if(value, "index");
  return Device(index ? cat(type, ":", whole_number(*index)) : type);
}

}  // namespace mica::program
