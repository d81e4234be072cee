// log, log2, log10, log1p, and the logarithm of an unevaluated sum on which the inverse hyperbolics stand.

#if defined(MICA_CPU_SIMD_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_LOG_INL_H_
#undef MICA_CPU_SIMD_LOG_INL_H_
#else
#define MICA_CPU_SIMD_LOG_INL_H_
#endif

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What every logarithm gives outside the positive finite numbers: -inf at zero, NaN below, infinity at infinity.
template <class D, class V>
HWY_INLINE V with_log_limits(D d, V x, V result) {
#if MICA_SIMD_AVX512
  if constexpr (sizeof(V) == 64) {
    // One nibble per class of input, from the lowest: quiet NaN, signalling NaN, zero, one, -inf, +inf, negative,
    // positive. 0 keeps the result, 2 is a quiet NaN of the input, 3 a plain NaN, 4 is -inf, 5 is +inf.
    constexpr int kFixes = 0x03530422;
    if constexpr (sizeof(hn::TFromD<D>) == 4) {
      return V{_mm512_fixupimm_ps(result.raw, x.raw, _mm512_set1_epi32(kFixes), 0)};
    } else {
      return V{_mm512_fixupimm_pd(result.raw, x.raw, _mm512_set1_epi64(kFixes), 0)};
    }
  }
#endif
  result = hn::IfThenElse(hn::Lt(x, infinity(d)), result, x);
  const V outside = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity(d)), quiet_nan(d));
  return hn::IfThenElse(hn::Le(x, hn::Zero(d)), outside, result);
}

// log(1 + f) - f for f in [-1/4, 1/2].
template <class D, class V>
HWY_INLINE V log1p_tail(D d, V f) {
  using T = hn::TFromD<D>;
  const V f2 = hn::Mul(f, f);
  const V cubic = hn::Mul(f, polynomial(d, f, Polynomials<T>::kLog));
  return hn::Mul(f2, hn::Sub(cubic, hn::Set(d, T(0.5))));
}

template <class D, class V>
HWY_INLINE V log(D d, V x) {
  if constexpr (DoubleLanes<D> || MICA_SIMD_AVX512) return with_log_limits(d, x, log_of_positive_by_table(d, x));
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const Decomposed<V> parts = decompose(d, x);
  const V f = hn::Sub(parts.mantissa, hn::Set(d, T(1)));
  const V tail = hn::MulAdd(parts.exponent, hn::Set(d, P::kLn2Lo), log1p_tail(d, f));
  // exponent * kLn2Hi is exact, and its sum with f is taken exactly.
  const V whole = hn::Mul(parts.exponent, hn::Set(d, P::kLn2Hi));
  const Pair<V> sum = fast_two_sum(whole, f);
  return with_log_limits(d, x, hn::Add(sum.hi, hn::Add(sum.lo, tail)));
}

// log(hi + lo) = exponent * log(2) + (value.hi + value.lo) for positive finite hi, with |lo| far below hi.
template <class D, class V>
HWY_INLINE ScaledPair<V> log_parts(D d, V hi, V lo) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  const Decomposed<V> parts = decompose(d, hi);
  const V f = hn::Sub(parts.mantissa, one);
  // lo / 2^exponent, moved through log(1 + f + small) - log(1 + f) by its first terms: lo is already an ulp or less.
  const V small = scale_by_pow2(d, lo, hn::Neg(parts.exponent));
  const V slope = hn::NegMulAdd(small, hn::Set(d, T(0.5)), hn::MulAdd(hn::Sub(f, one), f, one));
  const Pair<V> half_square = two_product(f, hn::Mul(f, hn::Set(d, T(0.5))));
  const V square = hn::Add(half_square.hi, half_square.hi);
  const V cubic = hn::MulSub(hn::Mul(f, square), polynomial(d, f, Polynomials<T>::kLog), half_square.lo);
  const Pair<V> leading = fast_two_sum(f, hn::Neg(half_square.hi));
  return {{leading.hi, hn::Add(leading.lo, hn::MulAdd(small, slope, cubic))}, parts.exponent};
}

// log(hi + lo) with the limits of a logarithm at hi.
template <class D, class V>
HWY_INLINE V log_of_sum(D d, V hi, V lo, V extra_exponent) {
  using P = Polynomials<hn::TFromD<D>>;
  const ScaledPair<V> parts = log_parts(d, hi, lo);
  const V exponent = hn::Add(parts.exponent, extra_exponent);
  const Pair<V> sum = fast_two_sum(hn::Mul(exponent, hn::Set(d, P::kLn2Hi)), parts.value.hi);
  const V tail = hn::MulAdd(exponent, hn::Set(d, P::kLn2Lo), hn::Add(sum.lo, parts.value.lo));
  return with_log_limits(d, hi, hn::Add(sum.hi, tail));
}

// log(x) / log(base), where exponent * per_two + mantissa log * (scale_hi + scale_lo) is summed in pairs.
template <class D, class V>
HWY_INLINE V log_in_base(D d, V x, Pair<V> per_two, Pair<V> scale) {
  const ScaledPair<V> parts = log_parts(d, x, hn::Zero(d));
  Pair<V> fraction = two_product(parts.value.hi, scale.hi);
  fraction.lo = hn::MulAdd(parts.value.lo, scale.hi, hn::MulAdd(parts.value.hi, scale.lo, fraction.lo));
  const Pair<V> sum = fast_two_sum(hn::Mul(parts.exponent, per_two.hi), fraction.hi);
  const V tail = hn::MulAdd(parts.exponent, per_two.lo, hn::Add(sum.lo, fraction.lo));
  return with_log_limits(d, x, hn::Add(sum.hi, tail));
}

template <class D, class V>
HWY_INLINE V log2(D d, V x) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  return log_in_base(d, x, Pair<V>{hn::Set(d, T(1)), hn::Zero(d)},
                     Pair<V>{hn::Set(d, P::kLog2EPairHi), hn::Set(d, P::kLog2EPairLo)});
}

template <class D, class V>
HWY_INLINE V log10(D d, V x) {
  using P = Polynomials<hn::TFromD<D>>;
  return log_in_base(d, x, Pair<V>{hn::Set(d, P::kLog10Of2Hi), hn::Set(d, P::kLog10Of2Lo)},
                     Pair<V>{hn::Set(d, P::kLog10EPairHi), hn::Set(d, P::kLog10EPairLo)});
}

// log(1 + hi + lo).
template <class D, class V>
HWY_INLINE V log1p_of_sum(D d, V hi, V lo) {
  const Pair<V> sum = two_sum(hn::Set(d, hn::TFromD<D>(1)), hi);
  // At infinity the error of the sum is NaN; it must not reach the result.
  const V error = hn::IfThenElseZero(hn::Lt(sum.hi, infinity(d)), hn::Add(sum.lo, lo));
  return log_of_sum(d, sum.hi, error, hn::Zero(d));
}

template <class D, class V>
HWY_INLINE V log1p(D d, V x) {
  const V result = log1p_of_sum(d, x, hn::Zero(d));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, result);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_LOG_INL_H_
