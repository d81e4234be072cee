// Visits of integers by their width, for what gives the same bits for signed and unsigned ones: sums, products, bits,
// equality. Half as many loops are compiled.
#pragma once

#include "backends/cpu/pointwise/visit_others.h"

namespace mica::cpu {

template <class F>
void visit_words(const char* op, DType dtype, const F& f) {
  switch (dtype) {
    case DType::UInt8:
    case DType::Int8:
      return f(Tag<uint8_t>{});
    case DType::UInt16:
    case DType::Int16:
      return f(Tag<uint16_t>{});
    case DType::UInt32:
    case DType::Int32:
      return f(Tag<uint32_t>{});
    case DType::UInt64:
    case DType::Int64:
      return f(Tag<uint64_t>{});
    default:
      unsupported_dtype(op, dtype);
  }
}

template <class F>
void visit_words_bool(const char* op, DType dtype, const F& f) {
  dtype == DType::Bool ? f(Tag<bool>{}) : visit_words(op, dtype, f);
}

template <class F>
void visit_words_complex(const char* op, DType dtype, const F& f) {
  is_integral(dtype) ? visit_words(op, dtype, f) : visit_any_complex(op, dtype, f);
}

}  // namespace mica::cpu
