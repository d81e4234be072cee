// sin, cos, tan for every argument.

#if defined(MICA_CPU_SIMD_TRIG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_TRIG_INL_H_
#undef MICA_CPU_SIMD_TRIG_INL_H_
#else
#define MICA_CPU_SIMD_TRIG_INL_H_
#endif

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Up to here the reductions below keep every bit; larger arguments (and infinities, NaNs) go through the C library.
inline constexpr double kTrigVectorLimit = 1099511627776.0;  // 2^40

template <class D, class V, class F>
HWY_INLINE V with_huge_arguments(D d, V x, V result, F scalar) {
  const auto huge = hn::Not(hn::Lt(hn::Abs(x), hn::Set(d, hn::TFromD<D>(kTrigVectorLimit))));
  if (any_lane(d, huge)) result = hn::IfThenElse(huge, per_lane(d, hn::IfThenElseZero(huge, x), scalar), result);
  return result;
}

// x - n * pi, as exact as a float result needs: the first fused step has no rounding error.
template <class D, class V>
HWY_INLINE V minus_multiple_of_pi(D d, V x, V n) {
  using P = Polynomials<double>;
  return hn::NegMulAdd(n, hn::Set(d, P::kPiLo), hn::NegMulAdd(n, hn::Set(d, P::kPiHi), x));
}

// (-1)^n sin(r) for a float result; shifted holds kRoundingMagic + n, whose lowest bit is the parity of n.
template <class D, class V>
HWY_INLINE V alternating_sin(D d, V r, V shifted) {
  const hn::RebindToUnsigned<D> du;
  const V sine = hn::Mul(r, polynomial(d, hn::Mul(r, r), PolynomialsThroughDouble::kSin));
  return hn::Xor(sine, hn::BitCast(d, hn::ShiftLeft<63>(hn::BitCast(du, shifted))));
}

template <FloatLanes D>
HWY_INLINE hn::VFromD<D> sin(D d, hn::VFromD<D> x) {
  const auto result = through_double(d, x, [](auto dd, auto v) {
    const auto magic = hn::Set(dd, FloatFormat<double>::kRoundingMagic);
    const auto shifted = hn::MulAdd(v, hn::Set(dd, 0.5 * Polynomials<double>::kTwoOverPi), magic);
    return alternating_sin(dd, minus_multiple_of_pi(dd, v, hn::Sub(shifted, magic)), shifted);
  });
  return with_huge_arguments(d, x, result, [](float v) { return std::sin(v); });
}

// cos(x) = -(-1)^n sin(x - (n + 1/2) pi): the sign is that of n + 1.
template <FloatLanes D>
HWY_INLINE hn::VFromD<D> cos(D d, hn::VFromD<D> x) {
  const auto result = through_double(d, x, [](auto dd, auto v) {
    const auto half = hn::Set(dd, 0.5);
    const auto magic = hn::Set(dd, FloatFormat<double>::kRoundingMagic);
    const auto next = hn::Add(hn::MulAdd(v, hn::Set(dd, 0.5 * Polynomials<double>::kTwoOverPi), half), magic);
    return alternating_sin(dd, minus_multiple_of_pi(dd, v, hn::Sub(hn::Sub(next, magic), half)), next);
  });
  return with_huge_arguments(d, x, result, [](float v) { return std::cos(v); });
}

// x = n * pi/2 + (hi + lo) with |hi| <= pi/4; quadrant holds n in its low bits.
template <class D, class V>
struct QuarterTurns {
  Pair<V> rest;
  hn::VFromD<hn::RebindToUnsigned<D>> quadrant;
};

template <class D, class V>
HWY_INLINE QuarterTurns<D, V> reduce_to_quarter(D d, V x) {
  using P = Polynomials<double>;
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, FloatFormat<double>::kRoundingMagic);
  const V shifted = hn::MulAdd(x, hn::Set(d, P::kTwoOverPi), magic);
  const V n = hn::Sub(shifted, magic);
  const V coarse = hn::NegMulAdd(n, hn::Set(d, P::kHalfPiHi), x);  // exact
  const Pair<V> fine = two_product(n, hn::Set(d, P::kHalfPiMid));
  Pair<V> rest = two_sum(coarse, hn::Neg(fine.hi));
  rest.lo = hn::NegMulAdd(n, hn::Set(d, P::kHalfPiLo), hn::Sub(rest.lo, fine.lo));
  return {fast_two_sum(rest.hi, rest.lo), hn::BitCast(du, shifted)};
}

// sin(hi + lo) or, in the lanes of use_cosine, cos(hi + lo).
template <class D, class V, class M>
HWY_INLINE V sin_or_cos(D d, Pair<V> r, M use_cosine) {
  using P = Polynomials<double>;
  const V one = hn::Set(d, 1.0);
  const V half = hn::Set(d, 0.5);
  const V u = hn::Mul(r.hi, r.hi);
  const V half_u = hn::Mul(u, half);
  const V cubic = hn::MulAdd(hn::Mul(u, polynomial(d, u, P::kSin)), r.hi, hn::NegMulAdd(r.lo, half_u, r.lo));
  const V sine = hn::Add(r.hi, cubic);
  const V leading = hn::Sub(one, half_u);
  const V lost = hn::Sub(hn::Sub(one, leading), half_u);
  const V quartic = hn::MulAdd(hn::Mul(u, u), polynomial(d, u, P::kCos), hn::NegMulAdd(r.hi, r.lo, lost));
  return hn::IfThenElse(use_cosine, hn::Add(leading, quartic), sine);
}

template <class D, class V>
HWY_INLINE V sin_of_turns(D d, V x, uint64_t quarter_turns) {
  const hn::RebindToUnsigned<D> du;
  const QuarterTurns<D, V> turns = reduce_to_quarter(d, x);
  const auto quadrant = hn::Add(turns.quadrant, hn::Set(du, quarter_turns));
  const auto odd = hn::MaskFromVec(
      hn::BitCast(d, hn::Neg(hn::BitCast(hn::RebindToSigned<D>(), hn::And(quadrant, hn::Set(du, uint64_t(1)))))));
  const auto sign = hn::ShiftLeft<63>(hn::ShiftRight<1>(quadrant));
  return hn::Xor(sin_or_cos(d, turns.rest, odd), hn::BitCast(d, sign));
}

// The lanes of `result` that are too far from zero for the tables, by `far`.
template <class D, class V, class F>
HWY_INLINE V with_far_arguments(D d, V x, V result, F far) {
  const auto is_far = hn::Not(hn::Lt(hn::Abs(x), hn::Set(d, kStepLimit)));
  if (any_lane(d, is_far)) result = hn::IfThenElse(is_far, far(d, x), result);
  return result;
}

template <class D, class V>
HWY_NOINLINE V sin_of_far(D d, V x) {
  return with_huge_arguments(d, x, sin_of_turns(d, x, 0), [](double v) { return std::sin(v); });
}
template <class D, class V>
HWY_NOINLINE V cos_of_far(D d, V x) {
  return with_huge_arguments(d, x, sin_of_turns(d, x, 1), [](double v) { return std::cos(v); });
}

template <DoubleLanes D>
HWY_INLINE hn::VFromD<D> sin(D d, hn::VFromD<D> x) {
  return with_far_arguments(d, x, sin_by_table(d, x), [](auto dd, auto v) HWY_ATTR { return sin_of_far(dd, v); });
}

template <DoubleLanes D>
HWY_INLINE hn::VFromD<D> cos(D d, hn::VFromD<D> x) {
  return with_far_arguments(d, x, cos_by_table(d, x), [](auto dd, auto v) HWY_ATTR { return cos_of_far(dd, v); });
}

template <FloatLanes D>
HWY_INLINE hn::VFromD<D> tan(D d, hn::VFromD<D> x) {
  const auto result = through_double(d, x, [](auto dd, auto v) {
    using P = Polynomials<double>;
    const hn::RebindToUnsigned<decltype(dd)> du;
    const auto magic = hn::Set(dd, FloatFormat<double>::kRoundingMagic);
    const auto shifted = hn::MulAdd(v, hn::Set(dd, P::kTwoOverPi), magic);
    const auto n = hn::Sub(shifted, magic);
    const auto r = hn::NegMulAdd(n, hn::Set(dd, P::kHalfPiMid), hn::NegMulAdd(n, hn::Set(dd, P::kHalfPiHi), v));
    const auto t = hn::Mul(r, short_chains(dd, hn::Mul(r, r), PolynomialsThroughDouble::kTan));
    const auto odd = hn::Ne(hn::And(hn::BitCast(du, shifted), hn::Set(du, uint64_t(1))), hn::Zero(du));
    return hn::IfThenElse(hn::RebindMask(dd, odd), hn::Neg(rough_reciprocal(dd, t)), t);
  });
  return with_huge_arguments(d, x, result, [](float v) { return std::tan(v); });
}

template <class D, class V>
HWY_NOINLINE V tan_of_far(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const QuarterTurns<D, V> turns = reduce_to_quarter(d, x);
  const V r = turns.rest.hi;
  const Pair<V> u = two_product(r, r);
  // tan(r + lo) = tan(r) + lo (1 + tan(r)^2), where 1 + u serves: lo is below half an ulp of r.
  const V p = polynomial(d, u.hi, Polynomials<double>::kTan);
  const Pair<V> cubic = two_product(r, hn::Mul(u.hi, p));
  const V small = hn::MulAdd(turns.rest.lo, u.hi, hn::MulAdd(hn::Mul(u.lo, p), r, turns.rest.lo));
  Pair<V> t = fast_two_sum(r, cubic.hi);
  t.lo = hn::Add(t.lo, hn::Add(cubic.lo, small));
  const V q = hn::Div(hn::Set(d, -1.0), t.hi);
  // One step of division by t.hi + t.lo: the remainder -1 - q * t.
  const V remainder = hn::NegMulAdd(q, t.lo, hn::NegMulAdd(q, t.hi, hn::Set(d, -1.0)));
  const V cotangent = hn::NegMulAdd(remainder, q, q);
  const auto odd = hn::Ne(hn::And(turns.quadrant, hn::Set(du, uint64_t(1))), hn::Zero(du));
  const V result = hn::IfThenElse(hn::RebindMask(d, odd), cotangent, hn::Add(t.hi, t.lo));
  return with_huge_arguments(d, x, result, [](double v) { return std::tan(v); });
}

template <DoubleLanes D>
HWY_INLINE hn::VFromD<D> tan(D d, hn::VFromD<D> x) {
  return with_far_arguments(d, x, tan_by_table(d, x), [](auto dd, auto v) HWY_ATTR { return tan_of_far(dd, v); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_TRIG_INL_H_
