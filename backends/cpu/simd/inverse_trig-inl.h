// asin, acos, atan, atan2.

#if defined(MICA_CPU_SIMD_INVERSE_TRIG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_INVERSE_TRIG_INL_H_
#undef MICA_CPU_SIMD_INVERSE_TRIG_INL_H_
#else
#define MICA_CPU_SIMD_INVERSE_TRIG_INL_H_
#endif

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// For |x| <= 1/2: root = |x|, error = 0. Above: root + error = sqrt((1 - |x|) / 2), whose arcsine is half of what is
// missing from pi/2. cubic = asin(root) - root in both.
template <class V, class M>
struct ArcsineParts {
  V root, cubic;
  M outer;
};

template <class D, class V>
HWY_INLINE auto arcsine_parts(D d, V x) {
  using T = hn::TFromD<D>;
  const V half = hn::Set(d, T(0.5));
  const V magnitude = hn::Abs(x);
  const auto outer = hn::Gt(magnitude, half);
  const V u = hn::IfThenElse(outer, hn::NegMulAdd(magnitude, half, half), hn::Mul(x, x));
  const V root = hn::IfThenElse(outer, hn::Sqrt(u), magnitude);
  const V twice = hn::Add(root, root);
  const V square_error = hn::IfThenElseZero(hn::And(outer, hn::Gt(root, hn::Zero(d))), hn::NegMulAdd(root, root, u));
  const V error = hn::Div(square_error, hn::IfThenElse(hn::Gt(twice, hn::Zero(d)), twice, half));
  const V cubic = hn::MulAdd(hn::Mul(root, u), polynomial(d, u, Polynomials<T>::kAsin), error);
  return ArcsineParts<V, decltype(outer)>{root, cubic, outer};
}

// Outside [-1, 1] the square root above is NaN, and so is the result.
template <class D, class V>
HWY_INLINE V asin(D d, V x) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const auto parts = arcsine_parts(d, x);
  const V minus_two = hn::Set(d, T(-2));
  const Pair<V> rest = fast_two_sum(hn::Set(d, P::kHalfPiHi), hn::Mul(parts.root, minus_two));
  const V outer = hn::Add(rest.hi, hn::Add(rest.lo, hn::MulAdd(parts.cubic, minus_two, hn::Set(d, P::kHalfPiMid))));
  return hn::CopySign(hn::IfThenElse(parts.outer, outer, hn::Add(parts.root, parts.cubic)), x);
}

template <class D, class V>
HWY_INLINE V acos(D d, V x) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const auto parts = arcsine_parts(d, x);
  const V zero = hn::Zero(d);
  const auto negative = hn::Lt(x, zero);
  // Inner: pi/2 - x - ...; outer: 2 root for positive x, pi - 2 root for negative x.
  const V outer_hi = hn::IfThenElseZero(negative, hn::Set(d, P::kPiHi));
  const V outer_lo = hn::IfThenElseZero(negative, hn::Set(d, P::kPiLo));
  const V base_hi = hn::IfThenElse(parts.outer, outer_hi, hn::Set(d, P::kHalfPiHi));
  const V base_lo = hn::IfThenElse(parts.outer, outer_lo, hn::Set(d, P::kHalfPiMid));
  const V outer_factor = hn::IfThenElse(negative, hn::Set(d, T(-2)), hn::Set(d, T(2)));
  const V inner_factor = hn::IfThenElse(negative, hn::Set(d, T(1)), hn::Set(d, T(-1)));
  const V factor = hn::IfThenElse(parts.outer, outer_factor, inner_factor);
  const Pair<V> sum = fast_two_sum(base_hi, hn::Mul(parts.root, factor));
  return hn::Add(sum.hi, hn::Add(sum.lo, hn::MulAdd(parts.cubic, factor, base_lo)));
}

// The angle of the point (x, y) with x, y >= 0 of ordinary magnitude, not both zero, in the half plane that negative_x
// chooses. As k pi/4 +- atan(q) with |q| <= tan(pi/8), q a pair.
template <class D, class V, class M>
HWY_INLINE V angle_of(D d, V y, V x, M negative_x) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const V zero = hn::Zero(d);
  const auto steep = hn::Gt(y, x);
  const V small = hn::Min(x, y);
  const V large = hn::Max(x, y);
  const auto diagonal = hn::Gt(small, hn::Mul(large, hn::Set(d, T(0.41421356237309504880))));
  const Pair<V> difference = fast_two_sum(hn::Neg(large), small);
  const Pair<V> sum = fast_two_sum(large, small);
  const V n_hi = hn::IfThenElse(diagonal, difference.hi, small);
  const V n_lo = hn::IfThenElseZero(diagonal, difference.lo);
  const V v_hi = hn::IfThenElse(diagonal, sum.hi, large);
  const V v_lo = hn::IfThenElseZero(diagonal, sum.lo);
  const V r = quick_reciprocal(d, v_hi);
  const V q = hn::Mul(n_hi, r);
  const V q_lo = hn::Mul(hn::Add(hn::NegMulAdd(v_hi, q, n_hi), hn::NegMulAdd(v_lo, q, n_lo)), r);
  const V u = hn::Mul(q, q);
  const V tail = hn::MulAdd(hn::Mul(q, u), polynomial(d, u, P::kAtan), hn::NegMulAdd(q_lo, u, q_lo));
  V k = hn::IfThenElseZero(diagonal, hn::Set(d, T(1)));
  k = hn::IfThenElse(steep, hn::Sub(hn::Set(d, T(2)), k), k);
  k = hn::IfThenElse(negative_x, hn::Sub(hn::Set(d, T(4)), k), k);
  const auto minus = hn::Xor(steep, negative_x);
  const V sign = hn::IfThenElse(minus, hn::SignBit(d), zero);
  const V quarter = hn::Set(d, P::kQuarterPiHi);
  const V base = hn::Mul(k, quarter);
  const V base_lo = hn::MulAdd(k, hn::Set(d, P::kQuarterPiLo), hn::MulSub(k, quarter, base));
  const Pair<V> angle = fast_two_sum(base, hn::Xor(q, sign));
  return hn::Add(angle.hi, hn::Add(angle.lo, hn::Add(base_lo, hn::Xor(tail, sign))));
}

template <class D, class V>
HWY_INLINE V atan(D d, V x) {
  using T = hn::TFromD<D>;
  if constexpr (DoubleLanes<D> || MICA_SIMD_AVX512) return atan_by_table(d, x);
  // Beyond this the angle is pi/2 to the last bit.
  const V bounded = at_most(d, hn::Abs(x), T(0x1p60));
  const V one = hn::Set(d, T(1));
  const V angle = angle_of(d, bounded, one, hn::Lt(one, hn::Zero(d)));
  return hn::CopySign(hn::IfThenElse(hn::IsNaN(x), x, angle), x);
}

template <class D, class V>
HWY_INLINE V atan2(D d, V y, V x) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, T(1));
  const V inf = infinity(d);
  V ay = hn::Abs(y);
  V ax = hn::Abs(x);
  const V larger = hn::Max(ax, ay);
  // Infinities count as 1 against 0 for finite numbers; (0, 0) lies on the axis of its signed x.
  const auto infinite = hn::Eq(larger, inf);
  const auto y_counts = hn::Eq(ay, inf);
  const auto x_counts = hn::Or(hn::Eq(ax, inf), hn::Eq(larger, zero));
  ay = hn::IfThenElse(infinite, hn::IfThenElseZero(y_counts, one), ay);
  ax = hn::IfThenElse(hn::Or(infinite, x_counts), hn::IfThenElseZero(x_counts, one), ax);
  constexpr T kBig = sizeof(T) == 4 ? T(0x1p90f) : T(0x1p900);
  constexpr T kFactor = sizeof(T) == 4 ? T(0x1p40f) : T(0x1p300);
  V scale = hn::IfThenElse(hn::Gt(larger, hn::Set(d, kBig)), hn::Set(d, 1 / kFactor), one);
  scale = hn::IfThenElse(hn::Lt(larger, hn::Set(d, 1 / kBig)), hn::Set(d, kFactor), scale);
  scale = hn::IfThenElse(hn::Or(infinite, x_counts), one, scale);
  const auto negative_x = hn::Lt(hn::CopySign(one, x), zero);
  const V angle = hn::CopySign(angle_of(d, hn::Mul(ay, scale), hn::Mul(ax, scale), negative_x), y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::Add(x, y), angle);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_INVERSE_TRIG_INL_H_
