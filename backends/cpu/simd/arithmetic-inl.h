// Exact and nearly exact functions: roots, rounding, remainders, hypot, and the small compositions of others.

#if defined(MICA_CPU_SIMD_ARITHMETIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_ARITHMETIC_INL_H_
#undef MICA_CPU_SIMD_ARITHMETIC_INL_H_
#else
#define MICA_CPU_SIMD_ARITHMETIC_INL_H_
#endif

#include "backends/cpu/simd/activation-inl.h"
#include "backends/cpu/simd/trig-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V>
HWY_INLINE V sqrt(D, V x) {
  return hn::Sqrt(x);
}

template <class D, class V>
HWY_INLINE V reciprocal(D d, V x) {
  return hn::Div(hn::Set(d, hn::TFromD<D>(1)), x);
}

// AVX-512 refines an estimate of 14 bits by FMA, in a third of the divider's time: y (1 + e / 2 + 3 e^2 / 8), where
// e = 1 - x y^2. The last e is computed with what rounding takes from x y, which makes the result exact within 0.51
// ulp.
template <class D, class V>
HWY_INLINE V rsqrt(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
#if MICA_SIMD_AVX512
  const V half = hn::Set(d, T(0.5)), second = hn::Set(d, T(0.375)), estimate = native_inverse_root_estimate(x);
  V y = estimate;
  if constexpr (sizeof(T) == 8) {
    const V e = hn::NegMulAdd(hn::Mul(x, y), y, one);
    y = hn::MulAdd(hn::Mul(y, e), hn::MulAdd(e, second, half), y);
  }
  const Pair<V> xy = two_product(x, y);
  const V e = hn::NegMulAdd(xy.lo, y, hn::NegMulAdd(xy.hi, y, one));
  const V factor = sizeof(T) == 8 ? half : hn::MulAdd(e, second, half);
  y = hn::MulAdd(hn::Mul(y, e), factor, y);
  return hn::IfThenElse(hn::IsNaN(e), estimate, y);  // of zeros, infinity, negative numbers and NaN
#else
  return hn::Div(one, hn::Sqrt(x));
#endif
}

template <class D, class V>
HWY_INLINE V floor(D, V x) {
  return hn::Floor(x);
}

template <class D, class V>
HWY_INLINE V ceil(D, V x) {
  return hn::Ceil(x);
}

template <class D, class V>
HWY_INLINE V trunc(D, V x) {
  return hn::Trunc(x);
}

// Half-way cases go to the even neighbour.
template <class D, class V>
HWY_INLINE V round(D, V x) {
  return hn::Round(x);
}

template <class D, class V>
HWY_INLINE V copysign(D, V magnitude, V sign) {
  return hn::CopySign(magnitude, sign);
}

template <class D, class V>
HWY_INLINE V nextafter(D d, V x, V y) {
  using T = hn::TFromD<D>;
  return per_lane(d, x, y, [](T from, T to) { return std::nextafter(from, to); });
}

// The exact remainder of x / y with the sign of x. Quotients too long for the fused step go through the C library.
template <class D, class V>
HWY_INLINE V fmod(D d, V x, V y) {
  using T = hn::TFromD<D>;
  const V a = hn::Abs(x);
  const V b = hn::Abs(y);
  const V ratio = hn::Div(a, b);
  // Rounding may lift the ratio to the next integer, never below its own.
  V rest = hn::NegMulAdd(hn::Trunc(ratio), b, a);
  rest = hn::IfThenElse(hn::Lt(rest, hn::Zero(d)), hn::Add(rest, b), rest);
  V result = hn::CopySignToAbs(rest, x);
  const auto finite_ratio = hn::Lt(ratio, hn::Set(d, T(uint64_t{1} << FloatFormat<T>::kMantissaBits)));
  const auto unusual = hn::Not(hn::And(finite_ratio, hn::Lt(b, infinity(d))));
  if (any_lane(d, unusual)) {
    const V slow = per_lane(d, x, y, [](T u, T v) { return std::fmod(u, v); });
    result = hn::IfThenElse(unusual, slow, result);
  }
  return result;
}

// Python's %: the remainder with the sign of y.
template <class D, class V>
HWY_INLINE V remainder(D d, V x, V y) {
  const V zero = hn::Zero(d);
  const V rest = fmod(d, x, y);
  const auto opposite = hn::Xor(hn::Lt(y, zero), hn::Lt(rest, zero));
  return hn::IfThenElse(hn::And(hn::Ne(rest, zero), opposite), hn::Add(rest, y), rest);
}

template <FloatLanes D>
HWY_INLINE hn::VFromD<D> hypot(D d, hn::VFromD<D> x, hn::VFromD<D> y) {
  const auto root = [](auto, auto u, auto v) { return hn::Sqrt(hn::MulAdd(u, u, hn::Mul(v, v))); };
  const auto inf = infinity(d);
  const auto infinite = hn::Or(hn::Eq(hn::Abs(x), inf), hn::Eq(hn::Abs(y), inf));
  return hn::IfThenElse(infinite, inf, through_double(d, x, y, root));
}

// Scaled so that no square overflows or vanishes; the sum of squares is a pair, the root is corrected once.
template <DoubleLanes D>
HWY_INLINE hn::VFromD<D> hypot(D d, hn::VFromD<D> x, hn::VFromD<D> y) {
  using V = hn::VFromD<D>;
  const V one = hn::Set(d, 1.0);
  const V inf = infinity(d);
  V large = hn::Max(hn::Abs(x), hn::Abs(y));
  V small = hn::Min(hn::Abs(x), hn::Abs(y));
  const auto huge = hn::Gt(large, hn::Set(d, 0x1p500));
  const auto tiny = hn::Lt(large, hn::Set(d, 0x1p-450));
  const V down = hn::IfThenElse(huge, hn::Set(d, 0x1p-600), hn::IfThenElse(tiny, hn::Set(d, 0x1p600), one));
  const V up = hn::IfThenElse(huge, hn::Set(d, 0x1p600), hn::IfThenElse(tiny, hn::Set(d, 0x1p-600), one));
  large = hn::Mul(large, down);
  small = hn::Mul(small, down);
  const Pair<V> square = two_product(large, large);
  const Pair<V> other = two_product(small, small);
  const Pair<V> sum = fast_two_sum(square.hi, other.hi);
  const V error = hn::Add(sum.lo, hn::Add(square.lo, other.lo));
  const V root = hn::Sqrt(sum.hi);
  const V correction = hn::Div(hn::Add(hn::NegMulAdd(root, root, sum.hi), error), hn::Add(root, root));
  const V corrected = hn::IfThenElse(hn::Gt(root, hn::Zero(d)), hn::Add(root, correction), root);
  const V result = hn::Mul(corrected, up);
  const auto infinite = hn::Or(hn::Eq(hn::Abs(x), inf), hn::Eq(hn::Abs(y), inf));
  const V nan = hn::Add(x, y);
  return hn::IfThenElse(infinite, inf, hn::IfThenElse(hn::IsNaN(nan), nan, result));
}

// log(exp(a) + exp(b)); equal infinities are their own answer.
template <class D, class V>
HWY_INLINE V logaddexp(D d, V a, V b) {
  const V result = hn::Add(hn::Max(a, b), log1p_exp_neg_abs(d, hn::Sub(a, b)));
  return hn::IfThenElse(hn::Eq(a, b), hn::Add(a, hn::Set(d, hn::TFromD<D>(0.69314718055994530942))), result);
}

template <class D, class V>
HWY_INLINE V logaddexp2(D d, V a, V b) {
  using T = hn::TFromD<D>;
  const V decay = log1p(d, exp2(d, negative_abs(d, hn::Sub(a, b))));
  const V result = hn::MulAdd(decay, hn::Set(d, Polynomials<T>::kLog2E), hn::Max(a, b));
  return hn::IfThenElse(hn::Eq(a, b), hn::Add(a, hn::Set(d, T(1))), result);
}

// sin(pi x) / (pi x) with the product rounded first, as torch does.
template <class D, class V>
HWY_INLINE V sinc(D d, V x) {
  using T = hn::TFromD<D>;
  const V angle = hn::Mul(x, hn::Set(d, Polynomials<T>::kPiHi));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, T(1)), hn::Div(sin(d, angle), angle));
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_ARITHMETIC_INL_H_
