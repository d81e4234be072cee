// Chebyshev series whose terms are constants of the code.
#pragma once

#include <utility>

#include "backends/cpu/simd/bessel_tables.h"

namespace mica::cuda {

namespace bessel = cpu::bessel;

// One step of Clenshaw's recurrence for a sum of Chebyshev polynomials.
template <const bessel::Series& kSeries, int kTerm, class T>
__device__ void clenshaw_step(T twice, T& next, T& after) {
  constexpr double term = kSeries.terms[kTerm];
  const T here = ::fma(twice, next, static_cast<T>(term) - after);
  after = next;
  next = here;
}
template <const bessel::Series& kSeries, class T, int... k>
__device__ T clenshaw(T t, std::integer_sequence<int, k...>) {
  constexpr int count = sizeof...(k) + 1;
  constexpr double first = kSeries.terms[0];
  const T twice = t + t;
  T next = 0, after = 0;
  (clenshaw_step<kSeries, count - 1 - k>(twice, next, after), ...);
  return ::fma(t, next, static_cast<T>(first) - after);
}
// The series at t in [-1, 1].
template <const bessel::Series& kSeries, class T>
__device__ T chebyshev_series(T t) {
  constexpr int count = sizeof(T) == 4 ? kSeries.count_short : kSeries.count;
  return clenshaw<kSeries>(t, std::make_integer_sequence<int, count - 1>{});
}
template <class T>
__device__ T to_unit(T y, double top) {
  return ::fma(y, static_cast<T>(2 / top), T(-1));
}

}  // namespace mica::cuda
