// Products of numbers that may be complex.
#pragma once

#include <hwy/base.h>

#include <complex>

#ifdef __has_builtin
#if __has_builtin(__builtin_assoc_barrier)
#define MICA_ROUNDED(x) __builtin_assoc_barrier(x)
#endif
#endif
#ifndef MICA_ROUNDED
#define MICA_ROUNDED(x) (x)
#endif

namespace mica::cpu {

template <class T>
HWY_INLINE T product(T a, T b) {
  return a * b;
}

// Each of the four products is rounded, so that an element has the same bits in the vectors of a loop and in its tail.
// Of differences and sums of products side by side, g++ makes fused instructions (vfmaddsub) in vectors only, and does
// so with -ffp-contract=off too, unless something stands between product and sum.
template <class R>
HWY_INLINE std::complex<R> product(std::complex<R> a, std::complex<R> b) {
  const R ac = MICA_ROUNDED(a.real() * b.real()), bd = MICA_ROUNDED(a.imag() * b.imag());
  const R ad = MICA_ROUNDED(a.real() * b.imag()), bc = MICA_ROUNDED(a.imag() * b.real());
  return {ac - bd, ad + bc};
}

}  // namespace mica::cpu

#undef MICA_ROUNDED
