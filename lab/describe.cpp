#include "describe.h"

#include <cmath>
#include <cstdio>

#include "mica/inspect.h"

namespace mica::lab {

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}

Json number(const Scalar& value) {
  switch (value.category()) {
    case Category::Bool:
      return value.to<bool>();
    case Category::Integral:
      return value.to<int64_t>();
    case Category::Floating:
      return number(value.to<double>());
    default:
      return to_string(value);
  }
}

Json integers(IntArrayRef list) {
  Json array = Json::array();
  for (const int64_t n : list) array.push_back(n);
  return array;
}

DimVector dims(const Json& list, const char* what) {
  MICA_CHECK(list.is_array() && list.size() <= 8, what, ": a list of at most eight integers");
  DimVector result;
  for (const Json& n : list) {
    MICA_CHECK(n.is_number_integer(), what, ": ", n.dump(), " is not an integer");
    const int64_t value = n.get<int64_t>();
    MICA_CHECK(value > -(int64_t{1} << 40) && value < (int64_t{1} << 40), what, ": ", value, " is out of bounds");
    result.push_back(value);
  }
  return result;
}

DType dtype_named(const std::string& wanted) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (wanted == name(static_cast<DType>(i))) return static_cast<DType>(i);
  fail(ErrorKind::Type, cat("no dtype is named '", wanted, "'"));
}

Json contiguity_json(IntArrayRef sizes, IntArrayRef strides) {
  Json list = Json::array();
  for (MemoryFormat f : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d}) {
    const inspect::Contiguity c = inspect::contiguity(sizes, strides, f);
    if (!c.applies) continue;
    Json row = {{"format", inspect::name(f)}, {"holds", c.holds}};
    if (!c.holds) {
      row["dimension"] = c.dimension;
      row["expected"] = c.expected;
      row["found"] = c.found;
    }
    list.push_back(row);
  }
  return list;
}

std::string tuple(IntArrayRef v) {
  std::string s = "(";
  for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
  return s + (v.size() == 1 ? ",)" : ")");
}

Json first_values(const Tensor& t) {
  Json list = Json::array();
  if (t.is_meta()) return list;
  NoGradGuard below;
  const Tensor flat = t.detach().reshape({-1}).narrow(0, 0, std::min(t.numel(), kMostShown)).contiguous();
  for (int64_t i = 0; i < flat.numel(); ++i) list.push_back(number(flat[i].item()));
  return list;
}

Json places(IntArrayRef sizes, IntArrayRef strides, int64_t offset, int64_t most) {
  Json list = Json::array();
  int64_t numel = 1;
  for (const int64_t n : sizes) numel *= n;
  DimVector index(sizes.size(), 0);
  int64_t at = offset;
  for (int64_t i = 0; i < numel && i < most; ++i) {
    list.push_back(at);
    for (size_t d = sizes.size(); d-- > 0;) {
      at += strides[d];
      if (++index[d] < sizes[d]) break;
      at -= strides[d] * sizes[d];
      index[d] = 0;
    }
  }
  return list;
}

// The address of the first element, as Python's hex(x.data_ptr()).
static std::string address_of(const Tensor& t) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx",
                t.is_meta() ? 0ULL : static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(t.data_ptr())));
  return text;
}

Json describe(const Tensor& t) {
  const inspect::Anatomy a = inspect::explain(t);
  return {{"shape", integers(a.sizes)},
          {"strides", integers(a.strides)},
          {"offset", a.offset},
          {"numel", a.numel},
          {"device", cat(t.device())},
          {"data_ptr", address_of(t)},
          {"dtype", name(a.dtype)},
          {"bytes", a.numel * a.element_size},
          {"element_size", a.element_size},
          {"storage", {{"bytes", a.storage_bytes}, {"elements", a.storage_bytes / a.element_size}}},
          {"reached_bytes", a.reached_bytes},
          {"hole_bytes", a.hole_bytes},
          {"overlaps", a.overlaps},
          {"contiguous", t.is_contiguous()},
          {"formats", contiguity_json(a.sizes, a.strides)},
          {"requires_grad", a.requires_grad},
          {"grad_fn", a.grad_fn},
          {"values", first_values(t)},
          {"places", places(a.sizes, a.strides, a.offset)}};
}

}  // namespace mica::lab
