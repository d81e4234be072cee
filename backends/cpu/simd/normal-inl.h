// The normal distribution's functions: erfcx, ndtr, log_ndtr, and the logarithms beside them, entr and xlog1py.

#if defined(MICA_CPU_SIMD_NORMAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_NORMAL_INL_H_
#undef MICA_CPU_SIMD_NORMAL_INL_H_
#else
#define MICA_CPU_SIMD_NORMAL_INL_H_
#endif

#include "backends/cpu/simd/gaussian-inl.h"
#include "backends/cpu/simd/log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(t^2) erfc(t) for large t: 1 / (sqrt(pi) t) times 1 - y + 3 y^2 - 15 y^3 + ... with y = 1 / (2 t^2).
template <class D, class V>
HWY_INLINE V erfcx_far(D d, V t) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1)), inverse = hn::Div(one, t);
  const V y = hn::Mul(hn::Mul(inverse, inverse), hn::Set(d, T(0.5)));
  V series = one;
  for (int k = sizeof(T) == 4 ? 5 : 8; k > 0; --k)
    series = hn::NegMulAdd(hn::Mul(y, hn::Set(d, static_cast<T>(2 * k - 1))), series, one);
  return hn::Mul(hn::Mul(series, inverse), hn::Set(d, T(0.56418958354775628695)));
}

// exp(x^2) erfc(x).
template <class D, class V>
HWY_INLINE V erfcx(D d, V x) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  constexpr T kEnd = sizeof(T) == 4 ? T(10) : T(27);  // where the polynomial ends
  const V magnitude = hn::Abs(x), t = at_most(d, magnitude, kEnd), pole = hn::Set(d, P::kErfcxPole);
  const V denominator = hn::Add(t, pole), r = quick_reciprocal(d, denominator);
  const V z = refined_quotient(hn::Sub(t, pole), denominator, r);
  V result = refined_quotient(polynomial(d, z, P::kErfcx), denominator, r);
  const auto far = hn::Gt(magnitude, hn::Set(d, kEnd)), negative = hn::Lt(x, hn::Zero(d));
  if (any_lane(d, far)) result = hn::IfThenElse(far, erfcx_far(d, magnitude), result);
  if (any_lane(d, negative)) {
    // 2 exp(x^2) - erfcx(-x), which is infinite before x^2 leaves the range of the exponential.
    const V bounded = at_most(d, magnitude, sizeof(T) == 4 ? T(9.43) : T(26.645));
    const Pair<V> square = two_product(bounded, bounded);
    const V power = exp_in_range(d, square.hi, square.lo);
    result = hn::IfThenElse(negative, hn::Sub(hn::Add(power, power), result), result);
  }
  return result;
}

// erfc(x / sqrt(2)) / 2: the share of the normal distribution above x. What the quotient's rounding is worth is made up
// for by erfc's slope, -erfc(t) times about t + sqrt(t^2 + 4 / pi).
template <class D, class V>
HWY_INLINE V normal_tail(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr double kSqrtHalf = 0.70710678118654752440;
  constexpr T kHigh = static_cast<T>(kSqrtHalf);
  constexpr T kLow = sizeof(T) == 4 ? static_cast<T>(kSqrtHalf - kHigh) : T(-4.833646656726457e-17);
  const V t = hn::Mul(x, hn::Set(d, kHigh));
  const V missing = hn::MulAdd(x, hn::Set(d, kLow), hn::MulSub(x, hn::Set(d, kHigh), t));
  const V slope = hn::Add(t, hn::Sqrt(hn::MulAdd(t, t, hn::Set(d, T(1.27323954473516268615)))));
  const V tail = hn::Mul(erfc(d, t), hn::Set(d, T(0.5)));
  // Where the tail is zero or nearly all, x may be infinite and the correction NaN.
  const auto finite = hn::Lt(hn::Abs(t), hn::Set(d, T(40)));
  return hn::IfThenElse(finite, hn::NegMulAdd(hn::Mul(missing, slope), tail, tail), tail);
}

template <class D, class V>
HWY_INLINE V ndtr(D d, V x) {
  return normal_tail(d, hn::Neg(x));
}

// log(ndtr(x)): below -1 from erfcx, where ndtr itself may vanish.
template <class D, class V>
HWY_INLINE V log_ndtr(D d, V x) {
  using T = hn::TFromD<D>;
  const auto low = hn::Lt(x, hn::Set(d, T(-1)));
  V result = x;
  if (!hn::AllTrue(d, low)) result = log1p(d, hn::Neg(normal_tail(d, x)));
  if (any_lane(d, low)) {
    const V half = hn::Set(d, T(0.5));
    const V scaled = erfcx(d, hn::Mul(hn::Abs(x), hn::Set(d, T(0.70710678118654752440))));
    const V below = hn::NegMulAdd(hn::Mul(x, half), x, log(d, hn::Mul(scaled, half)));
    result = hn::IfThenElse(low, below, result);
  }
  return result;
}

// -x log(x), 0 at zero, -inf below.
template <class D, class V>
HWY_INLINE V entr(D d, V x) {
  const V outside = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Neg(infinity(d)), x);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Neg(hn::Mul(x, log(d, x))), outside);
}

// x log(1 + y), 0 where x is zero and y is a number.
template <class D, class V>
HWY_INLINE V xlog1py(D d, V x, V y) {
  const V product = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Zero(d), hn::Mul(x, log1p(d, y)));
  return hn::IfThenElse(hn::IsNaN(y), y, product);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_NORMAL_INL_H_
