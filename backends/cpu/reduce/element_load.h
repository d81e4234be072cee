// Loads elements of any dtype and stride into a contiguous run of the few types that reductions and scans compute in.
#pragma once

#include <cstdint>

#include "backends/cpu/visit_dtype.h"
#include "mica/dtype.h"

namespace mica::cpu {

struct ElementLoad {
  int64_t bytes;         // bytes of an element in memory
  int64_t loaded_bytes;  // bytes of an element as loaded
  bool direct;           // whether both are the same, so that contiguous elements need no load
  void (*load)(const char* from, int64_t stride, int64_t n, void* to);  // stride in bytes
};

// float16 and bfloat16 as float, integers and bool as int64, the others as they are. Throws torch's error for other
// dtypes.
const ElementLoad& load_number(const char* op, DType dtype);
// Integers as they are, bool as a byte of 0 or 1; floats as load_number gives them.
const ElementLoad& load_as_stored(const char* op, DType dtype);
// Whether each element is different from zero, as a byte of 0 or 1. Any dtype.
const ElementLoad& load_flag(DType dtype);
// The absolute value of a complex number as double. Real numbers as load_number gives them, with their sign.
const ElementLoad& load_magnitude(const char* op, DType dtype);

// Calls f with a Tag of the type that load_number gives.
template <class F>
void visit_loaded(DType dtype, const F& f) {
  switch (dtype) {
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float32:
      return f(Tag<float>{});
    case DType::Float64:
      return f(Tag<double>{});
    case DType::Complex64:
      return f(Tag<complex64>{});
    case DType::Complex128:
      return f(Tag<complex128>{});
    default:
      return f(Tag<int64_t>{});
  }
}

// Calls f with a Tag of the type that load_as_stored gives, for dtypes of which torch can tell which element is larger.
// bool counts as a byte.
template <class F>
void visit_loaded_ordered(const char* op, DType dtype, const F& f) {
  switch (dtype) {
    case DType::Bool:
    case DType::UInt8:
      return f(Tag<uint8_t>{});
    case DType::Int8:
      return f(Tag<int8_t>{});
    case DType::Int16:
      return f(Tag<int16_t>{});
    case DType::UInt16:
      return f(Tag<uint16_t>{});
    case DType::Int32:
      return f(Tag<int32_t>{});
    case DType::UInt32:
      return f(Tag<uint32_t>{});
    case DType::Int64:
      return f(Tag<int64_t>{});
    case DType::Float64:
      return f(Tag<double>{});
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float32:
      return f(Tag<float>{});
    default:
      unsupported_dtype(op, dtype);
  }
}

// The same for float16, bfloat16 and float32 (as float) and float64 (as double).
template <class F>
void visit_loaded_floating(const char* op, DType dtype, const F& f) {
  if (!is_floating(dtype) || is_float8(dtype)) unsupported_dtype(op, dtype);
  if (dtype == DType::Float64) return f(Tag<double>{});
  f(Tag<float>{});
}

}  // namespace mica::cpu
