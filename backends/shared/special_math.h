// Special functions for one number at a time, shared by the CPU and CUDA backends. Written for double; the float
// versions compute in double and round once.
#pragma once

#include <cmath>
#include <limits>

#include "backends/shared/host_device.h"

namespace mica::special {

inline constexpr double kPi = 3.14159265358979323846;
inline constexpr double kEpsilon = 1.11022302462515654e-16;  // half an ulp of 1

MICA_HD inline double infinity() { return std::numeric_limits<double>::infinity(); }
MICA_HD inline double not_a_number() { return std::numeric_limits<double>::quiet_NaN(); }

// sin(pi x) and cos(pi x), exact in their argument.
// Of |x|, because x - floor(x) of a small negative number is not exact.
MICA_HD inline double sin_pi(double x) {
  const double size = ::fabs(x), r = size - 2.0 * ::floor(0.5 * size);  // [0, 2)
  const double sign = (r >= 1.0) != (x < 0) ? -1.0 : 1.0;
  const double t = r >= 1.0 ? r - 1.0 : r;  // [0, 1)
  return sign * ::sin(kPi * (t > 0.5 ? 1.0 - t : t));
}

MICA_HD inline double cos_pi(double x) {
  const double size = ::fabs(x), r = size - 2.0 * ::floor(0.5 * size);
  const double t = r > 1.0 ? 2.0 - r : r;  // [0, 1]
  return t > 0.5 ? -::sin(kPi * (t - 0.5)) : ::sin(kPi * (0.5 - t));
}

// log |gamma(x)|. The plain C function also writes the global signgam, which threads must not share.
MICA_HD inline double lgamma(double x) {
#if defined(__CUDA_ARCH__)
  return ::lgamma(x);
#else
  int sign;
  return ::lgamma_r(x, &sign);
#endif
}

// 1 / x^(2k) weighted by B_2k / (2k), k = 1..; with x >= 10 eight terms reach double precision.
MICA_HD inline double digamma_asymptotic(double x) {
  const double y = 1.0 / (x * x);
  double s = 1.0 / 12.0;
  s = s * y - 691.0 / 32760.0;
  s = s * y + 1.0 / 132.0;
  s = s * y - 1.0 / 240.0;
  s = s * y + 1.0 / 252.0;
  s = s * y - 1.0 / 120.0;
  s = s * y + 1.0 / 12.0;
  return ::log(x) - 0.5 / x - y * s;
}

// The derivative of lgamma. torch's limits: -+inf at +-0, NaN at the negative integers and at -inf.
MICA_HD inline double digamma(double x) {
  if (x == 0.0) return ::copysign(infinity(), -x);
  double reflection = 0.0;
  if (x < 0.0) {
    if (x == ::floor(x)) return not_a_number();
    reflection = -kPi * cos_pi(x) / sin_pi(x);
    x = 1.0 - x;
  }
  if (x == infinity()) return x;
  double shifted = 0.0;
  while (x < 10.0) {
    shifted -= 1.0 / x;
    x += 1.0;
  }
  return digamma_asymptotic(x) + shifted + reflection;
}

// The derivative of digamma.
MICA_HD inline double trigamma(double x) {
  double sign = 1.0;
  double shifted = 0.0;
  if (x < 0.5) {
    sign = -1.0;
    const double s = sin_pi(x);
    shifted = -(kPi * kPi) / (s * s);
    x = 1.0 - x;
  }
  for (; x < 12.0; x += 1.0) shifted += 1.0 / (x * x);
  const double y = 1.0 / (x * x);
  double s = -691.0 / 2730.0;
  s = s * y + 5.0 / 66.0;
  s = s * y - 1.0 / 30.0;
  s = s * y + 1.0 / 42.0;
  s = s * y - 1.0 / 30.0;
  s = s * y + 1.0 / 6.0;
  const double tail = 1.0 / x + 0.5 * y + s * y / x;
  return sign * (shifted + tail);
}

// B_2k / (2k)! for k = 1..10, counted from 0.
MICA_HD constexpr double zeta_weight(int k) {
  constexpr double kWeights[] = {1.0 / 12.0,
                                 -1.0 / 720.0,
                                 1.0 / 30240.0,
                                 -1.0 / 1209600.0,
                                 1.0 / 47900160.0,
                                 -691.0 / 1307674368000.0,
                                 1.0 / 74724249600.0,
                                 -3617.0 / 10670622842880000.0,
                                 43867.0 / 5109094217170944000.0,
                                 -174611.0 / 802857662698291200000.0};
  return kWeights[k];
}

// Hurwitz's zeta(x, q) = sum over k >= 0 of (q + k)^-x, by Euler and Maclaurin's formula. torch's limits: inf at x = 1
// and at the poles q = 0, -1, ...; NaN for x < 1, and for negative q with a fractional x.
MICA_HD inline double zeta(double x, double q) {
  if (x == 1.0) return infinity();
  if (!(x > 1.0) || q != q) return not_a_number();
  if (q <= 0.0) {
    if (q == ::floor(q)) return infinity();
    if (x != ::floor(x)) return not_a_number();
  }
  double sum = 0.0;
  double a = q;
  // Direct terms until the tail's expansion converges fast; early leave when a term no longer counts.
  for (int k = 0; k < 10 || a <= 10.0; ++k, a += 1.0) {
    const double term = ::pow(a, -x);
    sum += term;
    if (k > 0 && ::fabs(term) < kEpsilon * ::fabs(sum) && a > 0.0) return sum;
  }
  const double power = ::pow(a, -x);
  sum += power * a / (x - 1.0) + 0.5 * power;
  double rising = x;  // x (x + 1) ... (x + 2k - 2)
  double decay = power / a;
  for (int k = 0; k < 10; ++k) {
    const double term = zeta_weight(k) * rising * decay;
    sum += term;
    if (::fabs(term) < kEpsilon * ::fabs(sum)) break;
    rising *= (x + 2 * k + 1) * (x + 2 * k + 2);
    decay /= a * a;
  }
  return sum;
}

// The n-th derivative of digamma.
MICA_HD inline double polygamma(int n, double x) {
  if (n == 0) return digamma(x);
  if (n == 1) return trigamma(x);
  const double value = ::exp(lgamma(n + 1.0)) * zeta(n + 1.0, x);
  return n % 2 == 1 ? value : -value;
}

// exp(-|x|) I_order(|x|) for order 0 or 1: the power series, all of whose terms are positive, and from 20 on Hankel's
// expansion, whose smallest term is there below half an ulp.
MICA_HD inline double scaled_bessel_i(int order, double magnitude) {
  if (magnitude < 20.0) {
    const double y = 0.25 * magnitude * magnitude;
    const double y_error = ::fma(0.25 * magnitude, magnitude, -y);
    double term = order == 0 ? 1.0 : 0.5 * magnitude;
    double sum = term;
    double slope = 0.0;  // y times the derivative of the sum, by which the rounding of y is corrected
    for (int k = 1; term > kEpsilon * sum; ++k) {
      term *= y / (double(k) * (k + order));
      sum += term;
      slope += k * term;
    }
    if (y > 0.0) sum += slope * (y_error / y);
    return sum * ::exp(-magnitude);
  }
  const double mu = 4.0 * order * order;
  double term = 1.0;
  double sum = 1.0;
  for (int k = 1; k < 40; ++k) {
    const double odd = 2.0 * k - 1.0;
    const double next = term * (odd * odd - mu) / (8.0 * k * magnitude);
    if (::fabs(next) >= ::fabs(term) || ::fabs(next) < kEpsilon) break;
    term = next;
    sum += term;
  }
  return sum / ::sqrt(2.0 * kPi * magnitude);
}

MICA_HD inline double i0e(double x) { return scaled_bessel_i(0, ::fabs(x)); }

MICA_HD inline double i1e(double x) { return ::copysign(scaled_bessel_i(1, ::fabs(x)), x); }

// The exponential in two halves, so that it does not overflow before the product does.
MICA_HD inline double i0(double x) {
  const double magnitude = ::fabs(x);
  if (magnitude == infinity()) return magnitude;
  const double half = ::exp(0.5 * magnitude);
  return half * i0e(x) * half;
}

MICA_HD inline double i1(double x) {
  const double magnitude = ::fabs(x);
  if (magnitude == infinity()) return x;
  const double half = ::exp(0.5 * magnitude);
  return half * i1e(x) * half;
}

// The inverse of erf: a closed-form guess good to 2 in 1000, then Halley's steps, each of which triples the digits.
// In the tails the residual is taken from erfc, where 1 - |y| is exact.
MICA_HD inline double erfinv(double y) {
  const double magnitude = ::fabs(y);
  if (!(magnitude < 1.0)) return magnitude == 1.0 ? ::copysign(infinity(), y) : not_a_number();
  if (magnitude < 1e-8) return y * 0.88622692545275801365;  // sqrt(pi) / 2
  const double l = ::log1p(-magnitude * magnitude);
  const double b = 4.3307467508177 + 0.5 * l;  // 2 / (pi 0.147), 0.147 being the guess's one constant
  double x = ::sqrt(::sqrt(b * b - l / 0.147) - b);
  for (int step = 0; step < 2; ++step) {
    const double residual = magnitude > 0.5 ? (1.0 - magnitude) - ::erfc(x) : ::erf(x) - magnitude;
    const double newton = residual / (1.12837916709551257390 * ::exp(-x * x));  // erf' = 2 / sqrt(pi) exp(-x^2)
    x -= newton / (1.0 + x * newton);
  }
  return ::copysign(x, y);
}

// exp(x^2) erfc(x). Below 10 as it stands, with the rounding of x^2 made up for; from there on the asymptotic series.
MICA_HD inline double erfcx(double x) {
  if (x < 10.0) {
    const double square = x * x;
    const double error = ::fma(x, x, -square);
    const double power = ::exp(square);
    if (power == infinity()) return power;
    return power * ::erfc(x) * (1.0 + error);
  }
  const double y = 0.5 / (x * x);
  double term = 1.0;
  double sum = 1.0;
  for (int k = 1; k < 20 && ::fabs(term) > kEpsilon; ++k) {
    term *= -(2.0 * k - 1.0) * y;
    sum += term;
  }
  return sum * 0.56418958354775628695 / x;  // 1 / sqrt(pi)
}

inline constexpr double kSqrtHalf = 0.70710678118654752440;

// The share of the normal distribution below x, and its logarithm.
MICA_HD inline double ndtr(double x) { return 0.5 * ::erfc(-x * kSqrtHalf); }
MICA_HD inline double log_ndtr(double x) {
  if (x < -1.0) return ::log(0.5 * erfcx(-x * kSqrtHalf)) - 0.5 * x * x;
  return ::log1p(-0.5 * ::erfc(x * kSqrtHalf));
}

// The inverse of ndtr, worked out in the lower half: a guess good to three digits, then Halley's steps. The residual is
// taken relative to ndtr, so that nothing underflows in the tail.
MICA_HD inline double ndtri(double p) {
  if (!(p > 0.0 && p < 1.0)) return p == 0.0 ? -infinity() : p == 1.0 ? infinity() : not_a_number();
  if (p == 0.5) return 0.0;
  if (p > 0.5) return -ndtri(1.0 - p);
  const double t = ::sqrt(-2.0 * ::log(p));
  double x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
  for (int step = 0; step < 3; ++step) {
    const double scaled = erfcx(-x * kSqrtHalf);  // ndtr(x) = exp(-x^2 / 2) scaled / 2
    const double newton = ::expm1(log_ndtr(x) - ::log(p)) * p / ndtr(x) * 1.25331413731550025121 * scaled;
    x -= newton / (1.0 + 0.5 * x * newton);
  }
  return x;
}

MICA_HD inline double entr(double x) {
  if (x > 0.0) return -x * ::log(x);
  return x == 0.0 ? 0.0 : x < 0.0 ? -infinity() : x;
}

MICA_HD inline double xlog1py(double x, double y) {
  if (y != y) return y;
  return x == 0.0 ? 0.0 : x * ::log1p(y);
}

// x^a exp(-x) / gamma(a + 1). For large a by Stirling's formula around x = a, where the factors would cancel.
MICA_HD inline double gamma_density(double a, double x) {
  if (a < 20.0) return ::exp(a * ::log(x) - x - lgamma(a + 1.0));
  const double d = (x - a) / a;
  const double y = 1.0 / (a * a);
  const double correction = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y * (1.0 / 1680.0)))) / a;
  const double spread = ::fabs(d) < 0.5 ? ::log1p(d) - d : ::log(x / a) - d;
  return ::exp(a * spread - correction) / ::sqrt(2.0 * kPi * a);
}

// The upper incomplete gamma function for large a: Temme's uniform expansion, of which two terms do from 1e6 on.
MICA_HD inline double gamma_share_above(double a, double x) {
  const double d = (x - a) / a;
  const bool near = ::fabs(d) < 1e-3;
  const double fall =
      near ? d * d * (0.5 - d * (1.0 / 3.0 - d * (0.25 - d * (0.2 - d * (1.0 / 6.0))))) : d - ::log1p(d);
  const double eta = ::copysign(::sqrt(2.0 * fall), d);
  const double slope = near ? d / 12.0 - 1.0 / 3.0 : 1.0 / d - 1.0 / eta;
  return 0.5 * ::erfc(eta * ::sqrt(0.5 * a)) + slope * ::exp(-a * fall) / ::sqrt(2.0 * kPi * a);
}

// The regularised incomplete gamma functions: the power series gives the lower one below a + 1, the continued fraction
// (Lentz's way) the upper one above.
MICA_HD inline double gamma_share(double a, double x, bool upper) {
  if (a < 0.0 || x < 0.0 || a != a || x != x) return not_a_number();
  if (a == 0.0) return x == 0.0 ? not_a_number() : upper ? 0.0 : 1.0;
  if (x == 0.0) return upper ? 1.0 : 0.0;
  if (a == infinity()) return x == infinity() ? not_a_number() : upper ? 1.0 : 0.0;
  if (x == infinity()) return upper ? 0.0 : 1.0;
  if (a > 1e6) return upper ? gamma_share_above(a, x) : 1.0 - gamma_share_above(a, x);
  const int steps = 2000 + int(10.0 * ::sqrt(a));
  if (x < a + 1.0) {
    double term = 1.0;
    double sum = 1.0;
    for (int k = 1; k < steps && term > kEpsilon * sum; ++k) {
      term *= x / (a + k);
      sum += term;
    }
    const double lower = gamma_density(a, x) * sum;
    return upper ? 1.0 - lower : lower;
  }
  constexpr double kTiny = 1e-300;
  double b = x + 1.0 - a;
  double c = 1.0 / kTiny;
  double d = 1.0 / b;
  double h = d;
  for (int k = 1; k < steps; ++k) {
    const double n = -k * (k - a);
    b += 2.0;
    d = n * d + b;
    d = 1.0 / (d == 0.0 ? kTiny : d);
    c = b + n / c;
    if (c == 0.0) c = kTiny;
    h *= d * c;
    if (::fabs(d * c - 1.0) < kEpsilon) break;
  }
  const double share = gamma_density(a, x) * a * h;
  return upper ? share : 1.0 - share;
}

MICA_HD inline double igamma(double a, double x) { return gamma_share(a, x, false); }
MICA_HD inline double igammac(double a, double x) { return gamma_share(a, x, true); }

MICA_HD inline float lgamma(float x) { return float(lgamma(double(x))); }
MICA_HD inline float digamma(float x) { return float(digamma(double(x))); }
MICA_HD inline float trigamma(float x) { return float(trigamma(double(x))); }
MICA_HD inline float zeta(float x, float q) { return float(zeta(double(x), double(q))); }
MICA_HD inline float polygamma(int n, float x) { return float(polygamma(n, double(x))); }
MICA_HD inline float i0(float x) { return float(i0(double(x))); }
MICA_HD inline float i0e(float x) { return float(i0e(double(x))); }
MICA_HD inline float i1(float x) { return float(i1(double(x))); }
MICA_HD inline float i1e(float x) { return float(i1e(double(x))); }
MICA_HD inline float erfinv(float y) { return float(erfinv(double(y))); }
MICA_HD inline float erfcx(float x) { return float(erfcx(double(x))); }
MICA_HD inline float ndtr(float x) { return float(ndtr(double(x))); }
MICA_HD inline float log_ndtr(float x) { return float(log_ndtr(double(x))); }
MICA_HD inline float ndtri(float p) { return float(ndtri(double(p))); }
MICA_HD inline float entr(float x) { return float(entr(double(x))); }
MICA_HD inline float xlog1py(float x, float y) { return float(xlog1py(double(x), double(y))); }
MICA_HD inline float igamma(float a, float x) { return float(igamma(double(a), double(x))); }
MICA_HD inline float igammac(float a, float x) { return float(igammac(double(a), double(x))); }

}  // namespace mica::special
