// visit_*(op, dtype, f): calls f with a Tag of the element type, or throws torch's "not implemented for" error. The
// sets are named for what torch's kernels take.
#pragma once

#include "backends/cpu/register.h"
#include "backends/shared/element_types.h"
#include "mica/backend/kernel_types.h"

namespace mica::cpu {

#define MICA_VISIT_CASE(T, Name) \
  case DType::Name:              \
    return f(Tag<T>{});
#define MICA_VISIT(name, ...)                          \
  template <class F>                                   \
  void name(const char* op, DType dtype, const F& f) { \
    switch (dtype) {                                   \
      __VA_ARGS__                                      \
      default:                                         \
        unsupported_dtype(op, dtype);                  \
    }                                                  \
  }

MICA_VISIT(visit_floating, MICA_FORALL_FLOATING(MICA_VISIT_CASE))
MICA_VISIT(visit_floating_complex, MICA_FORALL_FLOATING(MICA_VISIT_CASE) MICA_FORALL_COMPLEX(MICA_VISIT_CASE))
// int8 to int64, uint8 to uint64
MICA_VISIT(visit_integral, MICA_FORALL_INTEGRAL(MICA_VISIT_CASE) MICA_FORALL_UNSIGNED(MICA_VISIT_CASE))
MICA_VISIT(visit_integral_bool,
           MICA_FORALL_INTEGRAL(MICA_VISIT_CASE) MICA_FORALL_UNSIGNED(MICA_VISIT_CASE) MICA_VISIT_CASE(bool, Bool))
MICA_VISIT(visit_real, MICA_FORALL_INTEGRAL(MICA_VISIT_CASE) MICA_FORALL_UNSIGNED(MICA_VISIT_CASE)
                           MICA_FORALL_FLOATING(MICA_VISIT_CASE))
MICA_VISIT(visit_real_bool, MICA_FORALL_INTEGRAL(MICA_VISIT_CASE) MICA_FORALL_UNSIGNED(MICA_VISIT_CASE)
                                MICA_FORALL_FLOATING(MICA_VISIT_CASE) MICA_VISIT_CASE(bool, Bool))
MICA_VISIT(visit_number, MICA_FORALL_INTEGRAL(MICA_VISIT_CASE) MICA_FORALL_UNSIGNED(MICA_VISIT_CASE)
                             MICA_FORALL_FLOATING(MICA_VISIT_CASE) MICA_FORALL_COMPLEX(MICA_VISIT_CASE))
MICA_VISIT(visit_number_bool,
           MICA_FORALL_INTEGRAL(MICA_VISIT_CASE) MICA_FORALL_UNSIGNED(MICA_VISIT_CASE)
               MICA_FORALL_FLOATING(MICA_VISIT_CASE) MICA_FORALL_COMPLEX(MICA_VISIT_CASE) MICA_VISIT_CASE(bool, Bool))
MICA_VISIT(visit_any, MICA_FORALL_DTYPES(MICA_VISIT_CASE))

#undef MICA_VISIT
#undef MICA_VISIT_CASE

}  // namespace mica::cpu
