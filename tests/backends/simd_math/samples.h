// Samples, and the distance of a result from the truth in units of its last place.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/backends/simd_math/kernels.h"

namespace mica::cpu {

template <class T>
const Loops<T>& loops_of(const Target& target) {
  if constexpr (sizeof(T) == 4) return target.floats;
  if constexpr (sizeof(T) == 8) return target.doubles;
}

template <class T>
bool same_bits(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof(T)) == 0;
}

using Real = long double;

// The distance of got from want in units of T's last place at want; one that should have overflowed counts as right
// at infinity.
template <class T>
double ulps(T got, Real want) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  const Real overflow = Real(Limits::max()) * (1 + Real(Limits::epsilon()) / 4);
  if (std::fabs(want) >= overflow) return got == std::copysign(Limits::infinity(), T(want)) ? 0 : INFINITY;
  if (!std::isfinite(got)) return INFINITY;
  int exponent = Limits::min_exponent;
  if (want != 0) std::frexp(want, &exponent);
  return double(std::fabs(Real(got) - want) /
                std::ldexp(Real(1), std::max(exponent, Limits::min_exponent) - Limits::digits));
}

struct Range {
  double low, high;
  bool logarithmic = false;
};

template <class T>
std::vector<T> samples(Range range, size_t count) {
  std::mt19937_64 generator(42);
  std::uniform_real_distribution<double> uniform;
  const double low = range.logarithmic ? std::log(range.low) : range.low;
  const double high = range.logarithmic ? std::log(range.high) : range.high;
  std::vector<T> out(count);
  for (T& x : out) {
    const double u = low + (high - low) * uniform(generator);
    x = T(range.logarithmic ? std::exp(u) : u);
  }
  return out;
}

}  // namespace mica::cpu
