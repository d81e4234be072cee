// The dtypes that torch's pooling kernels take.
#pragma once

#include "backends/cpu/visit_dtype.h"

namespace mica::cpu {

// int8 to int64, uint8 and the floats.
template <class F>
void visit_pooled(const char* op, DType dtype, const F& f) {
  visit_pooled_integers(dtype, f, [&] { visit_floating(op, dtype, f); });
}

// Indices that nobody sees are kept as int32.
template <class F>
void visit_index(DType dtype, const F& f) {
  if (dtype == DType::Int32) return f(Tag<int32_t>{});
  f(Tag<int64_t>{});
}

}  // namespace mica::cpu
