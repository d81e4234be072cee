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

// Up to here floats are reduced as floats, and larger ones as doubles.
inline constexpr float kFloatTurnsLimit = 2048.0f;

template <class D, class V, class F>
HWY_INLINE V with_huge_arguments(D d, V x, V result, F scalar) {
  const auto huge = hn::Not(hn::Lt(hn::Abs(x), hn::Set(d, hn::TFromD<D>(kTrigVectorLimit))));
  if (any_lane(d, huge)) result = hn::IfThenElse(huge, per_lane(d, hn::IfThenElseZero(huge, x), scalar), result);
  return result;
}

// x = n * pi/2 + (hi + lo) with |hi| <= pi/4; quadrant holds n in its low bits. (Not a Pair: GCC would copy it through
// memory, on the way from the argument to the result.)
template <class D, class V>
struct QuarterTurns {
  V hi, lo;
  hn::VFromD<hn::RebindToUnsigned<D>> quadrant;
};

template <DoubleLanes D, class V>
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
  rest = fast_two_sum(rest.hi, rest.lo);
  return {rest.hi, rest.lo, hn::BitCast(du, shifted)};
}

// The same for floats up to kFloatTurnsLimit: multiples of the first two parts of pi/2 are exact, coarse has no more
// bits than x, and what rounding takes from hi is in lo.
template <FloatLanes D, class V>
HWY_INLINE QuarterTurns<D, V> reduce_to_quarter(D d, V x) {
  using P = Polynomials<float>;
  const V magic = hn::Set(d, FloatFormat<float>::kRoundingMagic), mid = hn::Set(d, P::kQuarterTurnMid);
  const V shifted = hn::MulAdd(x, hn::Set(d, P::kTwoOverPi), magic);
  const V n = hn::Sub(shifted, magic);
  const V coarse = hn::NegMulAdd(n, hn::Set(d, P::kQuarterTurnHi), x);
  const V hi = hn::NegMulAdd(n, mid, coarse);
  const V lo = hn::NegMulAdd(n, hn::Set(d, P::kQuarterTurnLo), hn::NegMulAdd(n, mid, hn::Sub(coarse, hi)));
  return {hi, lo, hn::BitCast(hn::RebindToUnsigned<D>(), shifted)};
}

// The lanes with an odd number of quarter turns.
template <class D, class V>
HWY_INLINE auto is_odd(D d, V quadrant) {
  const hn::RebindToUnsigned<D> du;
  return hn::RebindMask(d, hn::TestBit(quadrant, hn::Set(du, hn::TFromD<decltype(du)>(1))));
}

// sin(hi + lo) and cos(hi + lo), each as a leading part and the small rest.
template <class V>
struct SineAndCosine {
  Pair<V> sine, cosine;
};

template <class D, class V>
HWY_INLINE SineAndCosine<V> sine_and_cosine(D d, V hi, V lo) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const V one = hn::Set(d, T(1)), half = hn::Set(d, T(0.5));
  const V u = hn::Mul(hi, hi);
  const V leading = hn::NegMulAdd(u, half, one);
  const V cubic = hn::MulAdd(hn::Mul(u, polynomial(d, u, P::kSin)), hi, hn::Mul(lo, leading));
  const V lost = hn::NegMulAdd(u, half, hn::Sub(one, leading));
  const V quartic = hn::MulAdd(hn::Mul(u, u), polynomial(d, u, P::kCos), hn::NegMulAdd(hi, lo, lost));
  return {{hi, cubic}, {leading, quartic}};
}

template <class D, class V>
HWY_INLINE V sin_of_turns(D d, V x, hn::TFromD<hn::RebindToUnsigned<D>> quarter_turns) {
  const hn::RebindToUnsigned<D> du;
  const QuarterTurns<D, V> turns = reduce_to_quarter(d, x);
  const auto quadrant = hn::Add(turns.quadrant, hn::Set(du, quarter_turns));
  // The second bit of the quadrant, at the place of the sign.
  const auto sign = hn::And(hn::ShiftLeft<sizeof(hn::TFromD<D>) * 8 - 2>(quadrant), hn::BitCast(du, hn::SignBit(d)));
  const auto [sine, cosine] = sine_and_cosine(d, turns.hi, turns.lo);
  const V value = hn::IfThenElse(is_odd(d, quadrant), hn::Add(cosine.hi, cosine.lo), hn::Add(sine.hi, sine.lo));
  return hn::Xor(value, hn::BitCast(d, sign));
}

// Where a is not below b, or either is NaN. (Of Not(Lt(a, b)) GCC makes two instructions with AVX-512.)
template <class D, class V>
HWY_INLINE hn::Mask<D> not_below([[maybe_unused]] D d, V a, V b) {
#if MICA_SIMD_AVX512
  if constexpr (sizeof(V) == 64 && FloatLanes<D>) return {_mm512_cmp_ps_mask(a.raw, b.raw, _CMP_NLT_UQ)};
  if constexpr (sizeof(V) == 64 && DoubleLanes<D>) return {_mm512_cmp_pd_mask(a.raw, b.raw, _CMP_NLT_UQ)};
#endif
  return hn::Not(hn::Lt(a, b));
}

// Where arguments are too far from zero for the short reductions, or NaN.
template <class D, class V>
HWY_INLINE auto are_far(D d, V x) {
  const hn::TFromD<D> limit = sizeof(limit) == 4 ? kFloatTurnsLimit : kStepLimit;
  return not_below(d, hn::Abs(x), hn::Set(d, limit));
}

// Replaces, by `far`, the lanes of `result` whose arguments are too far from zero.
template <class D, class V, class F>
HWY_INLINE V with_far_arguments(D d, V x, V result, F far) {
  const auto is_far = are_far(d, x);
  if (any_lane(d, is_far)) result = hn::IfThenElse(is_far, far(d, x), result);
  return result;
}

template <DoubleLanes D, class V>
HWY_NOINLINE V sin_of_far(D d, V x) {
  return with_huge_arguments(d, x, sin_of_turns(d, x, 0), [](double v) { return std::sin(v); });
}
template <DoubleLanes D, class V>
HWY_NOINLINE V cos_of_far(D d, V x) {
  return with_huge_arguments(d, x, sin_of_turns(d, x, 1), [](double v) { return std::cos(v); });
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

template <FloatLanes D, class V>
HWY_NOINLINE V sin_of_far(D d, V x) {
  const auto result = through_double(d, x, [](auto dd, auto v) {
    const auto magic = hn::Set(dd, FloatFormat<double>::kRoundingMagic);
    const auto shifted = hn::MulAdd(v, hn::Set(dd, 0.5 * Polynomials<double>::kTwoOverPi), magic);
    return alternating_sin(dd, minus_multiple_of_pi(dd, v, hn::Sub(shifted, magic)), shifted);
  });
  return with_huge_arguments(d, x, result, [](float v) { return std::sin(v); });
}

// cos(x) = -(-1)^n sin(x - (n + 1/2) pi): the sign is that of n + 1.
template <FloatLanes D, class V>
HWY_NOINLINE V cos_of_far(D d, V x) {
  const auto result = through_double(d, x, [](auto dd, auto v) {
    const auto half = hn::Set(dd, 0.5);
    const auto magic = hn::Set(dd, FloatFormat<double>::kRoundingMagic);
    const auto next = hn::Add(hn::MulAdd(v, hn::Set(dd, 0.5 * Polynomials<double>::kTwoOverPi), half), magic);
    return alternating_sin(dd, minus_multiple_of_pi(dd, v, hn::Sub(hn::Sub(next, magic), half)), next);
  });
  return with_huge_arguments(d, x, result, [](float v) { return std::cos(v); });
}

// The sum of a small and a smaller part has lost the sign of a zero.
template <class D, class V>
HWY_INLINE V zero_as_it_is(D d, V x, V result) {
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, result);
}

template <FloatLanes D>
HWY_INLINE hn::VFromD<D> sin(D d, hn::VFromD<D> x) {
  const auto result = zero_as_it_is(d, x, sin_of_turns(d, x, 0));
  return with_far_arguments(d, x, result, [](auto dd, auto v) HWY_ATTR { return sin_of_far(dd, v); });
}

template <FloatLanes D>
HWY_INLINE hn::VFromD<D> cos(D d, hn::VFromD<D> x) {
  return with_far_arguments(d, x, sin_of_turns(d, x, 1), [](auto dd, auto v) HWY_ATTR { return cos_of_far(dd, v); });
}

// Several vectors at once, with one test of their range; each element's result is that of sin and cos.
template <class D, class V, size_t kCount>
HWY_INLINE bool any_far(D d, const V (&x)[kCount]) {
  const V limit = hn::Set(d, kFloatTurnsLimit);
  auto near = hn::Lt(hn::Abs(x[0]), limit);
  for (size_t i = 1; i < kCount; ++i) near = hn::And(near, hn::Lt(hn::Abs(x[i]), limit));
  return any_lane(d, hn::Not(near));
}
template <FloatLanes D, class V, size_t kCount>
HWY_INLINE void sin(D d, V (&x)[kCount]) {
  if (any_far(d, x)) {
    for (V& v : x) v = sin(d, v);
  } else {
    for (V& v : x) v = zero_as_it_is(d, v, sin_of_turns(d, v, 0));
  }
}
template <FloatLanes D, class V, size_t kCount>
HWY_INLINE void cos(D d, V (&x)[kCount]) {
  if (any_far(d, x)) {
    for (V& v : x) v = cos(d, v);
  } else {
    for (V& v : x) v = sin_of_turns(d, v, 1);
  }
}

template <DoubleLanes D>
HWY_INLINE hn::VFromD<D> sin(D d, hn::VFromD<D> x) {
  return with_far_arguments(d, x, sin_by_table(d, x), [](auto dd, auto v) HWY_ATTR { return sin_of_far(dd, v); });
}

template <DoubleLanes D>
HWY_INLINE hn::VFromD<D> cos(D d, hn::VFromD<D> x) {
  return with_far_arguments(d, x, cos_by_table(d, x), [](auto dd, auto v) HWY_ATTR { return cos_of_far(dd, v); });
}

template <FloatLanes D, class V>
HWY_NOINLINE V tan_of_far(D d, V x) {
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

// (n.hi + n.lo) / (v.hi + v.lo), where the lower parts are small but not below rounding: one step of division by an
// estimate. With AVX-512 that has 14 bits, twice as many after the step.
template <FloatLanes D, class V>
HWY_INLINE V quotient_of_sums(D d, Pair<V> n, Pair<V> v) {
  const V below = hn::Add(v.hi, v.lo);
#if MICA_SIMD_AVX512
  (void)d;
  const V inverse = native_reciprocal_estimate(below);
#else
  const V inverse = hn::Div(hn::Set(d, 1.0f), below);
#endif
  const V q = hn::Mul(hn::Add(n.hi, n.lo), inverse);
  const V remainder = hn::NegMulAdd(q, v.lo, hn::Add(hn::NegMulAdd(q, v.hi, n.hi), n.lo));
  return hn::MulAdd(remainder, inverse, q);
}

// sin / cos, or -cos / sin of an odd number of quarter turns.
template <FloatLanes D>
HWY_INLINE hn::VFromD<D> tan_of_near(D d, hn::VFromD<D> x) {
  using V = hn::VFromD<D>;
  const QuarterTurns<D, V> turns = reduce_to_quarter(d, x);
  const auto [sine, cosine] = sine_and_cosine(d, turns.hi, turns.lo);
  // The rounding error of the square is worth two steps: without them the result is 1.03 ulp off in the worst case.
  const Pair<V> square = two_product(turns.hi, turns.hi);
  const V quartic = hn::NegMulAdd(square.lo, hn::Set(d, 0.5f), cosine.lo);
  const V cubic = hn::MulAdd(hn::Mul(turns.hi, square.lo), hn::Set(d, -0.16666667f), sine.lo);
  const auto odd = is_odd(d, turns.quadrant);
  const Pair<V> above{hn::IfThenElse(odd, cosine.hi, sine.hi), hn::IfThenElse(odd, quartic, cubic)};
  const Pair<V> below{hn::IfThenElse(odd, sine.hi, cosine.hi), hn::IfThenElse(odd, cubic, quartic)};
  const V tangent = hn::Xor(quotient_of_sums(d, above, below), hn::IfThenElseZero(odd, hn::SignBit(d)));
  return zero_as_it_is(d, x, tangent);
}

template <DoubleLanes D, class V>
HWY_NOINLINE V tan_of_far(D d, V x) {
  const QuarterTurns<D, V> turns = reduce_to_quarter(d, x);
  const V r = turns.hi;
  const Pair<V> u = two_product(r, r);
  // tan(r + lo) = tan(r) + lo (1 + tan(r)^2), where 1 + u serves: lo is below half an ulp of r.
  const V p = polynomial(d, u.hi, Polynomials<double>::kTan);
  const Pair<V> cubic = two_product(r, hn::Mul(u.hi, p));
  const V small = hn::MulAdd(turns.lo, u.hi, hn::MulAdd(hn::Mul(u.lo, p), r, turns.lo));
  Pair<V> t = fast_two_sum(r, cubic.hi);
  t.lo = hn::Add(t.lo, hn::Add(cubic.lo, small));
  const V q = hn::Div(hn::Set(d, -1.0), t.hi);
  // One step of division by t.hi + t.lo: the remainder -1 - q * t.
  const V remainder = hn::NegMulAdd(q, t.lo, hn::NegMulAdd(q, t.hi, hn::Set(d, -1.0)));
  const V cotangent = hn::NegMulAdd(remainder, q, q);
  const V result = hn::IfThenElse(is_odd(d, turns.quadrant), cotangent, hn::Add(t.hi, t.lo));
  return with_huge_arguments(d, x, result, [](double v) { return std::tan(v); });
}

template <DoubleLanes D>
HWY_INLINE hn::VFromD<D> tan_of_near(D d, hn::VFromD<D> x) {
  return tan_by_table(d, x);
}

template <class D>
HWY_INLINE hn::VFromD<D> tan(D d, hn::VFromD<D> x) {
  return with_far_arguments(d, x, tan_of_near(d, x), [](auto dd, auto v) HWY_ATTR { return tan_of_far(dd, v); });
}

// Two vectors with one test of their range.
template <class D, class V>
HWY_INLINE void tan(D d, V (&x)[2]) {
  if (any_lane(d, hn::Or(are_far(d, x[0]), are_far(d, x[1])))) {
    for (V& v : x) v = tan(d, v);
  } else {
    for (V& v : x) v = tan_of_near(d, v);
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_TRIG_INL_H_
