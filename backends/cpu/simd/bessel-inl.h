// Bessel and Airy functions from Chebyshev series (bessel_tables.h). Errors are of the size of the last digit of the
// function's amplitude: near a zero the relative error grows.
#if defined(MICA_BESSEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_BESSEL_INL_H_
#undef MICA_BESSEL_INL_H_
#else
#define MICA_BESSEL_INL_H_
#endif

#include <limits>

#include "backends/cpu/simd/bessel_tables.h"
#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/log-inl.h"
#include "backends/cpu/simd/trig-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The series at t in [-1, 1], by Clenshaw's recurrence.
template <class D, class V>
HWY_INLINE V chebyshev_series(D d, const bessel::Series& series, V t) {
  using T = hn::TFromD<D>;
  const int count = sizeof(T) == 4 ? series.count_short : series.count;
  const V twice = hn::Add(t, t);
  V next = hn::Zero(d), after = hn::Zero(d);
  for (int k = count - 1; k > 0; --k) {
    const V here = hn::MulAdd(twice, next, hn::Sub(hn::Set(d, static_cast<T>(series.terms[k])), after));
    after = next;
    next = here;
  }
  return hn::MulAdd(t, next, hn::Sub(hn::Set(d, static_cast<T>(series.terms[0])), after));
}

// t for y in [0, top].
template <class D, class V>
HWY_INLINE V to_unit(D d, V y, double top) {
  using T = hn::TFromD<D>;
  return hn::MulSub(y, hn::Set(d, static_cast<T>(2 / top)), hn::Set(d, T(1)));
}

template <class D, class V>
HWY_INLINE V not_a_number(D d, V) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN());
}
template <class D, class V>
HWY_INLINE V infinity(D d, V) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::infinity());
}

// sqrt(2 / pi x) (P cos a - Q sin a) or, for Y, (P sin a + Q cos a), a = x - (2 order + 1) pi / 4; for x >= 8.
template <int kOrder, bool kSecond, class D, class V>
HWY_INLINE V oscillating(D d, V x) {
  using T = hn::TFromD<D>;
  const V ratio = hn::Div(hn::Set(d, T(8)), x), t = to_unit(d, hn::Mul(ratio, ratio), 1);
  const V p = chebyshev_series(d, kOrder ? bessel::kP1 : bessel::kP0, t);
  const V q = hn::Mul(ratio, chebyshev_series(d, kOrder ? bessel::kQ1 : bessel::kQ0, t));
  const V s = sin(d, x), c = cos(d, x);
  // cos a and sin a times sqrt(2)
  const V cosine = kOrder ? hn::Sub(s, c) : hn::Add(s, c);
  const V sine = kOrder ? hn::Neg(hn::Add(s, c)) : hn::Sub(s, c);
  const V sum = kSecond ? hn::MulAdd(p, sine, hn::Mul(q, cosine)) : hn::NegMulAdd(q, sine, hn::Mul(p, cosine));
  const V amplitude = hn::Sqrt(hn::Div(hn::Set(d, T(0.31830988618379067154)), x));  // 1 / pi x
  return hn::IfThenElse(hn::Eq(x, infinity(d, x)), hn::Zero(d), hn::Mul(amplitude, sum));
}

template <class D, class V>
HWY_INLINE V below_8(D d, V x, const bessel::Series& series) {
  using T = hn::TFromD<D>;
  const V near = hn::Min(x, hn::Set(d, T(8)));
  return chebyshev_series(d, series, to_unit(d, hn::Mul(near, near), 64));
}

template <class D, class V>
HWY_INLINE V bessel_j0(D d, V given) {
  using T = hn::TFromD<D>;
  const V x = hn::Abs(given);
  const auto small = hn::Lt(x, hn::Set(d, T(8)));
  V result = below_8(d, x, bessel::kJ0);
  if (!hn::AllTrue(d, small)) result = hn::IfThenElse(small, result, oscillating<0, false>(d, x));
  return hn::IfThenElse(hn::IsNaN(given), given, result);
}

template <class D, class V>
HWY_INLINE V bessel_j1(D d, V given) {
  using T = hn::TFromD<D>;
  const V x = hn::Abs(given);
  const auto small = hn::Lt(x, hn::Set(d, T(8)));
  V result = hn::Mul(x, below_8(d, x, bessel::kJ1));
  if (!hn::AllTrue(d, small)) result = hn::IfThenElse(small, result, oscillating<1, false>(d, x));
  result = hn::IfThenElse(hn::Lt(given, hn::Zero(d)), hn::Neg(result), result);
  return hn::IfThenElse(hn::IsNaN(given), given, result);
}

// Of the second kind: -inf at zero, NaN below.
template <int kOrder, class D, class V>
HWY_INLINE V bessel_y(D d, V x) {
  using T = hn::TFromD<D>;
  const auto small = hn::Lt(x, hn::Set(d, T(8)));
  const V two_over_pi = hn::Set(d, T(0.63661977236758134308));
  V result;
  if constexpr (kOrder == 0) {
    result = hn::MulAdd(hn::Mul(two_over_pi, log(d, x)), below_8(d, x, bessel::kJ0), below_8(d, x, bessel::kY0));
  } else {
    const V j1 = hn::Mul(x, below_8(d, x, bessel::kJ1));
    const V singular = hn::Mul(two_over_pi, hn::MulSub(log(d, x), j1, hn::Div(hn::Set(d, T(1)), x)));
    result = hn::MulAdd(x, below_8(d, x, bessel::kY1), singular);
  }
  if (!hn::AllTrue(d, small)) result = hn::IfThenElse(small, result, oscillating<kOrder, true>(d, x));
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity(d, x)), result);
  result = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), not_a_number(d, x), result);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// exp(-|x|) I(x), modified of the first kind, for order 0 or 1. Floats are computed as doubles: at 8 the series are a
// twentieth of what they are at 0, and so would be what is left of their digits.
template <int kOrder, class D, class V>
HWY_INLINE V scaled_bessel_i(D d, V given) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4)
    return through_double(d, given, [](auto dd, auto x) HWY_ATTR { return scaled_bessel_i<kOrder>(dd, x); });
  const V x = hn::Abs(given), eight = hn::Set(d, T(8)), near = hn::Min(x, eight);
  const auto small = hn::Le(x, eight);
  V result = chebyshev_series(d, kOrder ? bessel::kI1Low : bessel::kI0Low, to_unit(d, near, 8));
  if (kOrder) result = hn::Mul(result, near);
  if (!hn::AllTrue(d, small)) {
    const V far = hn::Max(x, eight);
    const V series =
        chebyshev_series(d, kOrder ? bessel::kI1High : bessel::kI0High, to_unit(d, hn::Div(eight, far), 1));
    result = hn::IfThenElse(small, result, hn::Div(series, hn::Sqrt(far)));
  }
  if (kOrder) result = hn::CopySignToAbs(result, given);
  return hn::IfThenElse(hn::IsNaN(given), given, result);
}

// The exponential in two halves, so that it does not overflow before the product does.
template <int kOrder, class D, class V>
HWY_INLINE V bessel_i(D d, V x) {
  const V half = exp(d, hn::Mul(hn::Abs(x), hn::Set(d, hn::TFromD<D>(0.5))));
  const V result = hn::Mul(hn::Mul(half, scaled_bessel_i<kOrder>(d, x)), half);
  const V at_infinity = kOrder ? x : hn::Abs(x);
  return hn::IfThenElse(hn::Eq(hn::Abs(x), infinity(d, x)), at_infinity, result);
}

// Modified, of the second kind: inf at zero, NaN below; with a factor exp(x) where `kScaled`.
template <int kOrder, bool kScaled, class D, class V>
HWY_INLINE V bessel_k(D d, V x) {
  using T = hn::TFromD<D>;
  const V two = hn::Set(d, T(2));
  const auto small = hn::Le(x, two);
  const V near = hn::Min(x, two), t = to_unit(d, hn::Mul(near, near), 4);
  const V logarithm = log(d, hn::Mul(near, hn::Set(d, T(0.5))));
  V low;
  if constexpr (kOrder == 0) {
    low = hn::NegMulAdd(logarithm, chebyshev_series(d, bessel::kI0Small, t), chebyshev_series(d, bessel::kK0Small, t));
  } else {
    const V i1 = hn::Mul(near, chebyshev_series(d, bessel::kI1Small, t));
    low = hn::MulAdd(logarithm, i1, hn::Div(chebyshev_series(d, bessel::kK1Small, t), near));
  }
  if (kScaled) low = hn::Mul(low, exp(d, near));
  const V far = hn::Max(x, two);
  V high = chebyshev_series(d, kOrder ? bessel::kK1Large : bessel::kK0Large, to_unit(d, hn::Div(two, far), 1));
  high = hn::Div(high, hn::Sqrt(far));
  if (!kScaled) high = hn::Mul(high, exp(d, hn::Neg(far)));
  V result = hn::IfThenElse(small, low, high);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), infinity(d, x), result);
  result = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), not_a_number(d, x), result);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

template <class D, class V>
HWY_INLINE V airy_ai(D d, V x) {
  using T = hn::TFromD<D>;
  const V low = hn::Set(d, T(-4)), high = hn::Set(d, T(2)), root_pi = hn::Set(d, T(0.56418958354775628695));
  const V middle = hn::Min(hn::Max(x, low), high);
  const V t = hn::Mul(hn::Add(middle, hn::Set(d, T(1))), hn::Set(d, T(1.0 / 3)));
  V result = chebyshev_series(d, bessel::kAiryMiddle, t);
  const auto above = hn::Gt(x, high), below = hn::Lt(x, low);
  if (!hn::AllFalse(d, hn::Or(above, below))) {
    const V size = hn::Max(hn::Abs(x), high), root = hn::Sqrt(size);
    const V s = hn::Mul(hn::Set(d, T(2.0 / 3)), hn::Mul(size, root));
    const V inverse = hn::Div(hn::Set(d, T(1)), s);
    const V amplitude = hn::Div(root_pi, hn::Sqrt(root));
    constexpr double kDecayTop = 0.53033008588991064330, kTurnTop = 0.03515625;
    const V decay = hn::Mul(
        hn::Mul(hn::Set(d, T(0.5)), exp(d, hn::Neg(s))),
        chebyshev_series(d, bessel::kAiryDecay, to_unit(d, hn::Min(inverse, hn::Set(d, T(kDecayTop))), kDecayTop)));
    const V squared = to_unit(d, hn::Min(hn::Mul(inverse, inverse), hn::Set(d, T(kTurnTop))), kTurnTop);
    const V sine = sin(d, s), cosine = cos(d, s), half_root = hn::Set(d, T(0.70710678118654752440));
    const V u = chebyshev_series(d, bessel::kAiryU, squared),
            v = hn::Mul(inverse, chebyshev_series(d, bessel::kAiryV, squared));
    const V turn = hn::Mul(half_root, hn::NegMulAdd(hn::Sub(cosine, sine), v, hn::Mul(hn::Add(sine, cosine), u)));
    const V outside = hn::Mul(amplitude, hn::IfThenElse(above, decay, turn));
    result = hn::IfThenElse(hn::Or(above, below), outside, result);
    result = hn::IfThenElse(hn::Eq(hn::Abs(x), infinity(d, x)), hn::IfThenElse(above, hn::Zero(d), not_a_number(d, x)),
                            result);
  }
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// sin(x) / x
template <class D, class V>
HWY_INLINE V spherical_bessel_j0(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  const auto zero = hn::Eq(x, hn::Zero(d));
  V result = hn::Div(sin(d, x), hn::IfThenElse(zero, one, x));
  result = hn::IfThenElse(zero, one, result);
  return hn::IfThenElse(hn::Eq(hn::Abs(x), infinity(d, x)), hn::Zero(d), result);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
