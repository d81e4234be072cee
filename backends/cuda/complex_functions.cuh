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
MICA_COMPLEX_FUNCTION(log)
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
__device__ Complex<R> pow(Complex<R> base, Complex<R> exponent) {
  return from_thrust(thrust::pow(in_thrust(base), in_thrust(exponent)));
}

}  // namespace mica::cuda::complex_functions
