// pow with the limits of C99's.

#if defined(MICA_CPU_SIMD_POW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_POW_INL_H_
#undef MICA_CPU_SIMD_POW_INL_H_
#else
#define MICA_CPU_SIMD_POW_INL_H_
#endif

#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// |x|^y for finite nonzero x and any finite y, in double arithmetic good enough for a float result.
template <class D, class V>
HWY_INLINE V pow_magnitude_for_float(D d, V x, V y) {
  using P = PolynomialsThroughDouble;
  const Decomposed<V> parts = decompose(d, hn::Abs(x));
  const V f = hn::Sub(parts.mantissa, hn::Set(d, 1.0));
  const V log2_x = hn::MulAdd(f, polynomial(d, f, P::kLog2), parts.exponent);
  // Beyond these the float result is infinite or zero.
  const V product = at_least(d, at_most(d, hn::Mul(log2_x, y), 200.0), -200.0);
  const V n = nearest_multiple(d, product, 1.0);
  return scale_by_pow2(d, polynomial(d, hn::Sub(product, n), P::kExp2), n);
}

// log(x) for positive finite x as a pair with about 65 good bits: 2 atanh(s) with s = (m - 1) / (m + 1), whose two
// leading terms are carried in full.
template <class D, class V>
HWY_INLINE Pair<V> log_as_pair(D d, V x) {
  using P = Polynomials<double>;
  const Decomposed<V> parts = decompose(d, x);
  const V one = hn::Set(d, 1.0);
  const V f = hn::Sub(parts.mantissa, one);
  const Pair<V> sum = fast_two_sum(one, parts.mantissa);
  Pair<V> s;
  s.hi = quotient(d, f, sum.hi);
  s.lo = hn::Mul(hn::NegMulAdd(s.hi, sum.lo, hn::NegMulAdd(s.hi, sum.hi, f)), quick_reciprocal(d, sum.hi));
  Pair<V> square = two_product(s.hi, s.hi);
  square.lo = hn::MulAdd(hn::Add(s.hi, s.hi), s.lo, square.lo);
  // s^3 * (2/3 + s^2 P(s^2)): the sum of its two factors' leading parts in pairs.
  const V higher = hn::Mul(square.hi, polynomial(d, square.hi, P::kLogOddTail));
  Pair<V> bracket = fast_two_sum(hn::Set(d, P::kTwoThirdsHi), higher);
  bracket.lo = hn::Add(bracket.lo, hn::Set(d, P::kTwoThirdsLo));
  Pair<V> cube = two_product(square.hi, s.hi);
  cube.lo = hn::MulAdd(square.hi, s.lo, hn::MulAdd(square.lo, s.hi, cube.lo));
  Pair<V> cubic = two_product(cube.hi, bracket.hi);
  cubic.lo = hn::MulAdd(cube.hi, bracket.lo, hn::MulAdd(cube.lo, bracket.hi, cubic.lo));
  Pair<V> whole = fast_two_sum(hn::Mul(parts.exponent, hn::Set(d, P::kLn2Hi)), hn::Add(s.hi, s.hi));
  whole.lo = hn::Add(whole.lo, hn::MulAdd(parts.exponent, hn::Set(d, P::kLn2Lo), hn::Add(s.lo, s.lo)));
  const Pair<V> total = two_sum(whole.hi, cubic.hi);
  return fast_two_sum(total.hi, hn::Add(total.lo, hn::Add(whole.lo, cubic.lo)));
}

template <class D, class V>
HWY_INLINE V pow_magnitude(D d, V x, V y) {
  const Pair<V> log_x = log_as_pair(d, hn::Abs(x));
  // Beyond these exponents every power but that of 1 overflows or underflows, and y * log(x) must not itself overflow.
  y = at_least(d, at_most(d, y, 0x1p64), -0x1p64);
  Pair<V> product = two_product(y, log_x.hi);
  product.lo = hn::MulAdd(y, log_x.lo, product.lo);
  const V bounded = at_least(d, at_most(d, product.hi, kExpOverflow<double>), kExpUnderflow<double>);
  const V correction = hn::IfThenElseZero(hn::Eq(bounded, product.hi), product.lo);
  const ScaledPair<V> e = exp_scaled(d, bounded, correction);
  return scale_by_pow2(d, hn::Add(e.value.hi, e.value.lo), e.exponent);
}

// Turns |x|^y into x^y: signs of negative bases, NaN where there is no real power, and the limits at 0, 1, infinity.
template <class D, class V>
HWY_INLINE V with_pow_limits(D d, V x, V y, V result) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, T(1));
  const V inf = infinity(d);
  const V magnitude = hn::Abs(x);
  // An integer is odd when its half is not an integer.
  const auto y_integral = hn::Eq(hn::Trunc(y), y);
  const V y_half = hn::Mul(y, hn::Set(d, T(0.5)));
  const auto y_odd = hn::AndNot(hn::Eq(hn::Trunc(y_half), y_half), y_integral);
  const auto grows = hn::Gt(y, zero);
  // 0 and infinity as bases; a NaN y is caught further down.
  const auto x_zero = hn::Eq(x, zero);
  const auto x_inf = hn::Eq(magnitude, inf);
  result = hn::IfThenElse(x_zero, hn::IfThenElse(grows, zero, inf), result);
  result = hn::IfThenElse(x_inf, hn::IfThenElse(grows, inf, zero), result);
  const auto y_inf = hn::Eq(hn::Abs(y), inf);
  const auto to_infinity = hn::Xor(hn::Gt(magnitude, one), hn::Lt(y, zero));
  const V at_infinity = hn::IfThenElse(hn::Eq(magnitude, one), one, hn::IfThenElse(to_infinity, inf, zero));
  result = hn::IfThenElse(y_inf, at_infinity, result);
  const auto negative = hn::Lt(x, zero);
  const auto no_real_power = hn::AndNot(hn::Or(y_integral, x_inf), negative);
  result = hn::IfThenElse(no_real_power, quiet_nan(d), result);
  result = hn::IfThenElse(y_odd, hn::CopySign(result, x), result);
  result = hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::Add(x, y), result);
  return hn::IfThenElse(hn::Or(hn::Eq(x, one), hn::Eq(y, zero)), one, result);
}

// The limits change nothing for positive finite x and finite y, the usual case; one test skips them.
template <class D, class V>
HWY_INLINE V with_pow_limits_if_needed(D d, V x, V y, V result) {
  const V inf = infinity(d);
  const auto usual = hn::And(hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, inf)), hn::Lt(hn::Abs(y), inf));
  return any_lane(d, hn::Not(usual)) ? with_pow_limits(d, x, y, result) : result;
}

template <FloatLanes D>
HWY_INLINE hn::VFromD<D> pow(D d, hn::VFromD<D> x, hn::VFromD<D> y) {
  const auto magnitude = [](auto dd, auto u, auto v) { return pow_magnitude_for_float(dd, u, v); };
  return with_pow_limits_if_needed(d, x, y, through_double(d, x, y, magnitude));
}

template <DoubleLanes D>
HWY_INLINE hn::VFromD<D> pow(D d, hn::VFromD<D> x, hn::VFromD<D> y) {
  return with_pow_limits_if_needed(d, x, y, pow_magnitude(d, x, y));
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_POW_INL_H_
