// Elements of any dtype and stride as a contiguous run of the few types that reductions and scans compute in.
#pragma once

#include <cstdint>

#include "backends/cpu/visit_dtype.h"
#include "mica/dtype.h"

namespace mica::cpu {

struct ElementLoad {
  int64_t bytes;         // of an element in memory
  int64_t loaded_bytes;  // of an element as computed
  bool direct;           // both are the same type: contiguous elements need no load
  void (*load)(const char* from, int64_t stride, int64_t n, void* to);  // stride in bytes
};

// float16 and bfloat16 as float, integers and bool as int64, the others as they are. Throws torch's error for other
// dtypes.
const ElementLoad& load_number(const char* op, DType dtype);
// Whether each element is different from zero, as a byte of 0 or 1. Any dtype.
const ElementLoad& load_flag(DType dtype);
// A complex number's absolute value as double; real numbers as load_number gives them, with their sign.
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

// The same for what can be told which is larger. uint64 cannot: it does not fit int64.
template <class F>
void visit_loaded_ordered(const char* op, DType dtype, const F& f) {
  if (dtype == DType::UInt64 || is_complex(dtype)) unsupported_dtype(op, dtype);
  visit_loaded(dtype, [&]<class T>(Tag<T> tag) {
    if constexpr (std::is_arithmetic_v<T>) f(tag);
  });
}

// The same for float16, bfloat16 and float32 (as float) and float64 (as double).
template <class F>
void visit_loaded_floating(const char* op, DType dtype, const F& f) {
  if (!is_floating(dtype) || is_float8(dtype)) unsupported_dtype(op, dtype);
  if (dtype == DType::Float64) return f(Tag<double>{});
  f(Tag<float>{});
}

}  // namespace mica::cpu
