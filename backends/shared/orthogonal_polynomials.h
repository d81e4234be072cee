// Orthogonal polynomials of degree n, by their recurrences, with torch's conventions for the ends of their intervals.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "backends/shared/special_math.h"

namespace mica::special {

// A degree from a number of the functions' own type, without its fraction: none below zero, and no more than an int64
// holds.
template <class T>
MICA_HD int64_t degree_of(T n) {
  if (!(n > -1)) return -1;
  constexpr T most = T(1ll << 62);
  return n < most ? static_cast<int64_t>(n) : int64_t{1} << 62;
}

template <class T>
MICA_HD T sign_of_degree(int64_t n) {
  return n % 2 == 0 ? T(1) : T(-1);
}

// p(0) = 1, p(1) = first, p(k + 1) = step(k, p(k), p(k - 1)).
template <class T, class Step>
MICA_HD T recur(T first, int64_t n, const Step& step) {
  if (n == 0) return T(1);
  T before = T(1), here = first;
  for (int64_t k = 1; k < n && !std::isnan(here); ++k) {
    const T next = step(static_cast<T>(k), here, before);
    before = here;
    here = next;
  }
  return here;
}

template <class T>
MICA_HD T chebyshev_recurrence(T x, T first, int64_t n) {
  return recur(first, n, [x](T, T here, T before) { return (x + x) * here - before; });
}

// The four kinds differ in p(1), in their values at 1 and -1, and in their form with angles.
template <class T>
MICA_HD T chebyshev_t(T x, T degree) {
  const int64_t n = degree_of(degree);
  if (n < 0) return T(0);
  if (std::abs(x) == T(1)) return x > 0 ? T(1) : sign_of_degree<T>(n);
  if (n > 6 && std::abs(x) < T(1)) return std::cos(static_cast<T>(n) * std::acos(x));
  return chebyshev_recurrence(x, x, n);
}

template <class T>
MICA_HD T chebyshev_u(T x, T degree) {
  const int64_t n = degree_of(degree);
  if (n < 0) return T(0);
  if (std::abs(x) == T(1)) return (x > 0 ? T(1) : sign_of_degree<T>(n)) * static_cast<T>(n + 1);
  if (n > 8 && std::abs(x) < T(1)) {
    const T angle = std::acos(x), sine = std::sin(angle);
    if (sine != 0) return std::sin(static_cast<T>(n + 1) * angle) / sine;
    return static_cast<T>(n + 1) * std::cos(static_cast<T>(n + 1) * angle) / x;
  }
  return chebyshev_recurrence(x, x + x, n);
}

template <class T>
MICA_HD T chebyshev_v(T x, T degree) {
  const int64_t n = degree_of(degree);
  if (n < 0) return T(0);
  const T odd_count = sign_of_degree<T>(n) * static_cast<T>(n + n + 1);
  if (std::abs(x) == T(1)) return x > 0 ? T(1) : odd_count;
  if (n > 8 && std::abs(x) < T(1)) {
    const T angle = std::acos(x);
    if (std::sin(angle / 2) != 1) return std::cos((static_cast<T>(n) + T(0.5)) * angle) / std::cos(angle / 2);
    return odd_count;
  }
  return chebyshev_recurrence(x, x + x - T(1), n);
}

template <class T>
MICA_HD T chebyshev_w(T x, T degree) {
  const int64_t n = degree_of(degree);
  if (n < 0) return T(0);
  if (std::abs(x) == T(1)) return x > 0 ? static_cast<T>(n + n + 1) : sign_of_degree<T>(n);
  if (n > 8 && std::abs(x) < T(1)) {
    const T angle = std::acos(x);
    if (std::cos(angle / 2) != 1) return std::sin((static_cast<T>(n) + T(0.5)) * angle) / std::sin(angle / 2);
    return x > 0 ? static_cast<T>(n + n + 1) : sign_of_degree<T>(n);
  }
  return chebyshev_recurrence(x, x + x + T(1), n);
}

// On [0, 1] instead of [-1, 1].
template <class T>
MICA_HD T shifted_chebyshev_t(T x, T n) {
  return chebyshev_t(x + x - T(1), n);
}
template <class T>
MICA_HD T shifted_chebyshev_u(T x, T n) {
  return chebyshev_u(x + x - T(1), n);
}
template <class T>
MICA_HD T shifted_chebyshev_v(T x, T n) {
  return chebyshev_v(x + x - T(1), n);
}
template <class T>
MICA_HD T shifted_chebyshev_w(T x, T n) {
  return chebyshev_w(x + x - T(1), n);
}

// Hermite's terms grow far beyond their sum, so that they are float64 for a result of float32.
template <class T>
MICA_HD T hermite_h(T x, T degree) {
  const int64_t n = degree_of(degree);
  if (n < 0) return T(0);
  if (n > (sizeof(T) == 8 ? 512 : 128)) return std::numeric_limits<T>::quiet_NaN();
  const double twice = 2.0 * x;
  return static_cast<T>(
      recur(twice, n, [twice](double k, double here, double before) { return twice * here - (k + k) * before; }));
}

template <class T>
MICA_HD T hermite_he(T x, T degree) {
  const int64_t n = degree_of(degree);
  if (n < 0) return T(0);
  if (n > (sizeof(T) == 8 ? 512 : 128)) return std::numeric_limits<T>::quiet_NaN();
  const double wide = x;
  return static_cast<T>(
      recur(wide, n, [wide](double k, double here, double before) { return wide * here - k * before; }));
}

template <class T>
MICA_HD T laguerre_l(T x, T degree) {
  const int64_t n = degree_of(degree);
  if (n < 0) return T(0);
  if (x == 0) return T(1);
  return recur(T(1) - x, n,
               [x](T k, T here, T before) { return ((k + k + T(1) - x) * here - k * before) / (k + T(1)); });
}

template <class T>
MICA_HD T legendre_p(T x, T degree) {
  const int64_t n = degree_of(degree);
  if (n < 0) return T(0);
  if (std::abs(x) == T(1)) return x > 0 ? T(1) : sign_of_degree<T>(n);
  return recur(x, n, [x](T k, T here, T before) { return ((k + k + T(1)) * x * here - k * before) / (k + T(1)); });
}

}  // namespace mica::special
