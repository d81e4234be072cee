// Functions of complex numbers, by Thrust.
#pragma once

#include <thrust/complex.h>

#include "backends/cuda/complex.cuh"

namespace mica::cuda::complex_functions {

template <class R>
__device__ thrust::complex<R> in_thrust(Complex<R> z) {
  return {z.real(), z.imag()};
}
template <class R>
__device__ Complex<R> from_thrust(const thrust::complex<R>& z) {
  return {z.real(), z.imag()};
}

#define MICA_COMPLEX_FUNCTION(name)                 \
  template <class R>                                \
  __device__ Complex<R> name(Complex<R> z) {        \
    return from_thrust(thrust::name(in_thrust(z))); \
  }
MICA_COMPLEX_FUNCTION(exp)
MICA_COMPLEX_FUNCTION(log10)
MICA_COMPLEX_FUNCTION(sqrt)
MICA_COMPLEX_FUNCTION(sin)
MICA_COMPLEX_FUNCTION(cos)
MICA_COMPLEX_FUNCTION(tan)
MICA_COMPLEX_FUNCTION(sinh)
MICA_COMPLEX_FUNCTION(cosh)
MICA_COMPLEX_FUNCTION(tanh)
MICA_COMPLEX_FUNCTION(asin)
MICA_COMPLEX_FUNCTION(acos)
MICA_COMPLEX_FUNCTION(atan)
MICA_COMPLEX_FUNCTION(asinh)
MICA_COMPLEX_FUNCTION(acosh)
MICA_COMPLEX_FUNCTION(atanh)
#undef MICA_COMPLEX_FUNCTION

template <class R>
__device__ Complex<R> log(Complex<R> z) {
  return from_thrust(thrust::log(in_thrust(z)));
}
// The square of the size of a complex64 number is nearly exact in double, near one too, where Thrust takes steps of its
// own to find the size's logarithm. That square is a power of two times a float.
template <>
__device__ inline Complex<float> log(Complex<float> z) {
  const double a = z.real(), b = z.imag(), beyond_one = (a * a - 1) + b * b, square = a * a + b * b;
  float size;
  if (::fabs(beyond_one) < 0.5) {
    size = ::log1pf(static_cast<float>(beyond_one));
  } else if (square > 0 && square <= 1.7976931348623157e308) {
    const int exponent = (__double2hiint(square) >> 20) - 1023;
    const float fraction = static_cast<float>(square * __hiloint2double((1023 - exponent) << 20, 0));
    size = __fmaf_rn(static_cast<float>(exponent), 0.693147182f, ::logf(fraction)) +
           static_cast<float>(exponent) * -1.90465421e-9f;
  } else {  // zero, infinite, or no number
    size = ::isinf(a) || ::isinf(b) ? INFINITY : static_cast<float>(::log(square));
  }
  return {size / 2, ::atan2f(z.imag(), z.real())};
}

template <class R>
__device__ Complex<R> pow(Complex<R> base, Complex<R> exponent) {
  return from_thrust(thrust::pow(in_thrust(base), in_thrust(exponent)));
}

}  // namespace mica::cuda::complex_functions
