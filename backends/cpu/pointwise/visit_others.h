// Visits of the dtypes that have no vector loops of their own: integers, bool, complex numbers.
#pragma once

#include "backends/cpu/visit_dtype.h"

namespace mica::cpu {

template <class F>
void visit_complex(const char* op, DType dtype, const F& f) {
  switch (dtype) {
    case DType::Complex64:
      return f(Tag<complex64>{});
    case DType::Complex128:
      return f(Tag<complex128>{});
    default:
      unsupported_dtype(op, dtype);
  }
}

// complex32 as well, which is computed on as complex64.
template <class F>
void visit_any_complex(const char* op, DType dtype, const F& f) {
  if (dtype == DType::Complex32) return f(Tag<ComplexHalf>{});
  visit_complex(op, dtype, f);
}

template <class F>
void visit_integral_complex(const char* op, DType dtype, const F& f) {
  is_integral(dtype) ? visit_integral(op, dtype, f) : visit_any_complex(op, dtype, f);
}

}  // namespace mica::cpu
