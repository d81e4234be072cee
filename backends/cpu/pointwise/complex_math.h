// The mathematical functions of complex numbers, one number at a time.
#pragma once

#include "mica/backend/pointwise_loop.h"

namespace mica::cpu {

// clang-format off
#define MICA_FORALL_COMPLEX_MATH(X)                                                                 \
  X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sqrt) X(rsqrt) X(sin) X(cos) X(tan)    \
  X(sinh) X(cosh) X(tanh) X(asin) X(acos) X(atan) X(asinh) X(acosh) X(atanh) X(sigmoid) X(sinc) X(silu)
// clang-format on

// `kernel` is what torch calls the kernel in its errors.
#define MICA_DECLARE(name) void complex_##name(const char* kernel, const PointwiseLoop& loop);
MICA_FORALL_COMPLEX_MATH(MICA_DECLARE)
#undef MICA_DECLARE

}  // namespace mica::cpu
