// How a sample moves with a parameter of its distribution while its quantile stays the same: -(dF/da) / f, where F is
// the distribution function and f the density. F is a prefactor times a series or a continued fraction in its
// parameter; both are computed together with their derivative.
#pragma once

#include "backends/shared/special_math.h"

namespace mica::special {

inline constexpr double kTiny = 1e-290;
inline constexpr double kConverged = 1e-15;
inline constexpr int kMostSteps = 100000;

// A number and its derivative by the parameter.
struct Dual {
  double value = 0, slope = 0;
};
MICA_HD inline Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
MICA_HD inline Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
MICA_HD inline Dual reciprocal(Dual a) { return {1 / a.value, -a.slope / (a.value * a.value)}; }
MICA_HD inline Dual operator/(Dual a, Dual b) { return a * reciprocal(b); }
MICA_HD inline Dual away_from_zero(Dual a) { return ::fabs(a.value) < kTiny ? Dual{kTiny, a.slope} : a; }

// b0 + a1 / (b1 + a2 / (b2 + ...)) by Lentz's method, from b0 = 1; term(i) gives a_i and b_i.
template <class Term>
MICA_HD Dual continued_fraction(Dual first, const Term& term) {
  Dual result = away_from_zero(first), numerator = result, denominator = {0, 0};
  for (int i = 1; i < kMostSteps; ++i) {
    const auto [a, b] = term(i);
    denominator = reciprocal(away_from_zero(b + a * denominator));
    numerator = away_from_zero(b + a / numerator);
    const Dual step = numerator * denominator;
    result = result * step;
    if (::fabs(step.value - 1) < kConverged && ::fabs(step.slope) < kConverged * (1 + ::fabs(result.slope))) {
      break;
    }
  }
  return result;
}

struct Pair {
  Dual a, b;
};

// ---- gamma ------------------------------------------------------------------------------------------------------

// 1 + x / (a + 1) + x^2 / ((a + 1)(a + 2)) + ...
MICA_HD inline Dual gamma_series(double a, double x) {
  Dual sum = {1, 0}, term = {1, 0};
  for (int n = 1; n < kMostSteps; ++n) {
    term = term * (Dual{x, 0} / Dual{a + n, 1});
    sum = sum + term;
    if (::fabs(term.value) < kConverged * sum.value && ::fabs(term.slope) <= kConverged * ::fabs(sum.slope)) {
      break;
    }
  }
  return sum;
}

// For many degrees of freedom the sample is a + z sqrt(a) + (z^2 - 1) / 3 + ... with a normal z (Cornish and Fisher): z
// is found from the sample, and the sum is differentiated.
MICA_HD inline double gamma_slope_by_quantile(double a, double x) {
  const double root = ::sqrt(a);
  double z = (x - a) / root;
  for (int i = 0; i < 20; ++i) {
    const double z2 = z * z;
    const double rest = (z2 - 1) / 3 + (z2 * z - 7 * z) / (36 * root) - (3 * z2 * z2 + 7 * z2 - 16) / (810 * a);
    const double next = (x - a - rest) / root;
    if (::fabs(next - z) < 1e-14 * (1 + ::fabs(z))) break;
    z = next;
  }
  const double z2 = z * z;
  return 1 + z / (2 * root) - (z2 * z - 7 * z) / (72 * a * root) + (3 * z2 * z2 + 7 * z2 - 16) / (810 * a * a);
}

MICA_HD inline double gamma_slope(double a, double x) {
  if (!(a > 0) || x != x) return not_a_number();
  if (x <= 0) return 0;
  if (a > 2e4 && ::fabs(x - a) < 10 * ::sqrt(a)) return gamma_slope_by_quantile(a, x);
  if (x < a + 1) {
    const Dual sum = gamma_series(a, x);
    return -(x / a) * ((::log(x) - digamma(a + 1)) * sum.value + sum.slope);
  }
  // The upper tail: x^a e^-x / gamma(a) times 1 / (x + 1 - a - (1 - a) / (x + 3 - a - ...)).
  const Dual fraction = reciprocal(continued_fraction({x + 1 - a, -1}, [&](int i) {
    return Pair{{-i * (i - a), static_cast<double>(i)}, {x + 2 * i + 1 - a, -1}};
  }));
  return x * ((::log(x) - digamma(a)) * fraction.value + fraction.slope);
}

// ---- beta -------------------------------------------------------------------------------------------------------

// The fraction of the incomplete beta function, by one of its parameters: a.slope + b.slope is 1.
MICA_HD inline Dual beta_fraction(Dual a, Dual b, double x) {
  const Dual total = a + b;
  const auto constant = [](double value) { return Dual{value, 0}; };
  const Dual fraction = continued_fraction({1, 0}, [&](int i) {
    const int m = i / 2;
    const Dual am = a + constant(m), even = a + constant(2.0 * m);
    const Dual factor = i % 2 == 1 ? constant(-x) * am * (total + constant(m)) / (even * (even + constant(1)))
                                   : constant(m * x) * (b + constant(-m)) / ((even + constant(-1)) * even);
    return Pair{factor, {1, 0}};
  });
  return reciprocal(fraction);
}

// -(dI/da) / density / (1 - x) of the incomplete beta function I_x(a, b).
MICA_HD inline double beta_slope(double x, double a, double b) {
  if (!(a > 0) || !(b > 0) || x != x) return not_a_number();
  if (x <= 0) return 0;
  const double by_a = ::log(x) - digamma(a) + digamma(a + b);
  if (x < (a + 1) / (a + b + 2)) {
    const Dual fraction = beta_fraction({a, 1}, {b, 0}, x);
    return -(x / a) * ((by_a - 1 / a) * fraction.value + fraction.slope);
  }
  const Dual fraction = beta_fraction({b, 0}, {a, 1}, 1 - x);
  return (x / b) * (by_a * fraction.value + fraction.slope);
}

}  // namespace mica::special
