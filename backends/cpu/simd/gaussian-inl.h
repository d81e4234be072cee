// erf, erfc and gelu: everything that integrates a Gaussian.

#if defined(MICA_CPU_SIMD_GAUSSIAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_GAUSSIAN_INL_H_
#undef MICA_CPU_SIMD_GAUSSIAN_INL_H_
#else
#define MICA_CPU_SIMD_GAUSSIAN_INL_H_
#endif

#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/gaussian_tail.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V>
HWY_INLINE V erf_near_zero(D d, V x) {
  return hn::MulAdd(x, polynomial(d, hn::Mul(x, x), Polynomials<hn::TFromD<D>>::kErf), x);
}

// gelu(x) = max(x, 0) - |x| Q(|x|), where Q(t) = erfc(t / sqrt(2)) / 2 is the Gaussian's upper tail. Taking the tail
// itself instead of 1 + erf keeps the relative accuracy for negative x.

// For x from -4 to 5, where the tail is a power of two whose exponent is a polynomial: half the work, and nearly all
// inputs of a network. Below -4 the roundings of that exponent would show.
template <class D, class V>
HWY_INLINE V distance_to_short_tail(D d, V x) {
  return hn::AbsDiff(x, hn::Set(d, 0.5f));
}
inline constexpr float kShortTail = 4.5f;  // the largest distance

struct ShortTailAddends {
  using P = Polynomials<float>;
  static constexpr float kConstants[] = {P::kLogTailSlope, -1, 1};
  static constexpr Addends kEven{P::kLogTailEven};
  static constexpr Addends kOdd{P::kLogTailOdd};
  static constexpr Addends kExp2{P::kExp2};
  static constexpr Addends kOthers{kConstants};
};

#if MICA_SIMD_AVX512
// The tail by a polynomial per step of t, its coefficients looked up in registers: 20 operations a vector instead
// of 32.
HWY_INLINE __m512 gelu_by_pieces(__m512 x) {
  using P = GaussianTailPieces;
  const __m512 t = _mm512_abs_ps(x), magic = _mm512_set1_ps(FloatFormat<float>::kRoundingMagic);
  // The low bits of `shifted` hold the number of the piece, of which the look-up reads five.
  const __m512 shifted = _mm512_fmadd_ps(t, _mm512_set1_ps(1 / P::kStep), magic);
  const __m512 r = _mm512_fnmadd_ps(_mm512_sub_ps(shifted, magic), _mm512_set1_ps(P::kStep), t);
  const __m512i piece = _mm512_castps_si512(shifted);
  const auto row = [piece](int i) HWY_ATTR {
    return _mm512_permutex2var_ps(_mm512_load_ps(P::kTable[i]), piece, _mm512_load_ps(P::kTable[i] + 16));
  };
  __m512 tail = row(P::kCount - 1);
#pragma GCC unroll 8
  for (int i = P::kCount - 2; i >= 0; --i) tail = _mm512_fmadd_ps(tail, r, row(i));
  // The larger of 0 and x is x where that is -0 or NaN.
  return _mm512_fnmadd_ps(t, tail, _mm512_max_ps(_mm512_setzero_ps(), x));
}

template <size_t kCount>
HWY_INLINE void gelu_with_short_tail(hn::ScalableTag<float>, hn::Vec512<float> (&x)[kCount]) {
  for (auto& v : x) v = hn::Vec512<float>{gelu_by_pieces(v.raw)};
}
#endif

// The upper tails of t >= 0. Vectors go through each step together, so that none waits for its own last one.
template <class D, class V, size_t kCount>
HWY_INLINE void short_tails(D d, const V (&t)[kCount], V (&tail)[kCount]) {
  using P = Polynomials<float>;
  using A = ShortTailAddends;
  const hn::RebindToUnsigned<D> du;  // exponents are added as bits, which may pass the sign
  const V factor = hn::Set(d, P::kHalfLog2E), magic = hn::Set(d, FloatFormat<float>::kRoundingMagic);
  V square[kCount], odd[kCount], even[kCount], shifted[kCount];
#define MICA_SIMD_EACH for (size_t k = 0; k < kCount; ++k)
  MICA_SIMD_EACH square[k] = hn::Mul(t[k], t[k]);
  MICA_SIMD_EACH odd[k] = hn::MulAdd(hn::Set(d, P::kLogTailOdd[4]), square[k], A::kOdd.get(d, 3));
  MICA_SIMD_EACH even[k] = hn::MulAdd(hn::Set(d, P::kLogTailEven[4]), square[k], A::kEven.get(d, 3));
  MICA_SIMD_EACH odd[k] = hn::MulAdd(odd[k], square[k], A::kOdd.get(d, 2));
  MICA_SIMD_EACH even[k] = hn::MulAdd(even[k], square[k], A::kEven.get(d, 2));
  MICA_SIMD_EACH odd[k] = hn::MulAdd(odd[k], square[k], A::kOdd.get(d, 1));
  MICA_SIMD_EACH even[k] = hn::MulAdd(even[k], square[k], A::kEven.get(d, 1));
  MICA_SIMD_EACH odd[k] = hn::MulAdd(odd[k], square[k], A::kOdd.get(d, 0));
  MICA_SIMD_EACH even[k] = hn::MulAdd(even[k], square[k], A::kEven.get(d, 0));
  V(&p)[kCount] = even;
  MICA_SIMD_EACH p[k] = hn::MulAdd(odd[k], t[k], even[k]);
  MICA_SIMD_EACH p[k] = hn::MulAdd(p[k], t[k], A::kOthers.get(d, 0));
  MICA_SIMD_EACH p[k] = hn::MulAdd(p[k], t[k], A::kOthers.get(d, 1));
  // The low bits of `shifted` hold the exponent's whole part n, which is added to the exponent field of 2^f.
  MICA_SIMD_EACH shifted[k] = hn::Add(hn::NegMulAdd(square[k], factor, p[k]), magic);
  // The large parts of the exponent cancel in one operation, before the rest is added.
  V(&f)[kCount] = odd;
  MICA_SIMD_EACH f[k] = hn::Sub(p[k], hn::MulAdd(square[k], factor, hn::Sub(shifted[k], magic)));
  V(&power)[kCount] = square;
  MICA_SIMD_EACH power[k] = hn::MulAdd(hn::Set(d, P::kExp2[5]), f[k], A::kExp2.get(d, 4));
  MICA_SIMD_EACH power[k] = hn::MulAdd(power[k], f[k], A::kExp2.get(d, 3));
  MICA_SIMD_EACH power[k] = hn::MulAdd(power[k], f[k], A::kExp2.get(d, 2));
  MICA_SIMD_EACH power[k] = hn::MulAdd(power[k], f[k], A::kExp2.get(d, 1));
  MICA_SIMD_EACH power[k] = hn::MulAdd(power[k], f[k], A::kExp2.get(d, 0));
  MICA_SIMD_EACH power[k] = hn::MulAdd(power[k], f[k], A::kOthers.get(d, 2));
  MICA_SIMD_EACH tail[k] =
      hn::BitCast(d, hn::Add(hn::BitCast(du, power[k]), hn::ShiftLeft<23>(hn::BitCast(du, shifted[k]))));
#undef MICA_SIMD_EACH
}

template <class D, class V, size_t kCount>
HWY_INLINE void gelu_with_short_tail(D d, V (&x)[kCount]) {
  V t[kCount], tail[kCount];
  for (size_t k = 0; k < kCount; ++k) t[k] = hn::Abs(x[k]);
  short_tails(d, t, tail);
  for (size_t k = 0; k < kCount; ++k)
    x[k] = hn::NegMulAdd(t[k], tail[k], hn::IfThenZeroElse(hn::Lt(x[k], hn::Zero(d)), x[k]));
}

// -inf gives NaN, as 0 * inf does in torch.
template <class D, class V>
HWY_INLINE V gelu_with_long_tail(D d, V x) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  constexpr T kSqrt2 = T(1.4142135623730950488016887242097);
  // Beyond these bounds the tail is negligible beside x, or smaller than any number. It is left out, since a subnormal
  // product would be slow.
  const V positive_end = hn::Set(d, sizeof(T) == 4 ? T(8) : T(10));
  const V negative_end = hn::Set(d, sizeof(T) == 4 ? T(14.4) : T(38.8));
  const V magnitude = hn::Abs(x);
  const auto has_tail = hn::Lt(magnitude, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), positive_end, negative_end));
  const V t = hn::IfThenElse(has_tail, magnitude, hn::Set(d, T(1)));
  const Pair<V> square = two_product(t, t);
  const V minus_half = hn::Set(d, T(-0.5));
  const V decay = exp_in_range(d, hn::Mul(square.hi, minus_half), hn::Mul(square.lo, minus_half));
  // Twice (t / sqrt(2) + pole), which brings in the 1/2 of Q.
  const V denominator = hn::MulAdd(t, hn::Set(d, kSqrt2), hn::Set(d, 2 * P::kErfcxPole));
  const V r = quick_reciprocal(d, denominator);
  const V z = hn::NegMulAdd(r, hn::Set(d, 4 * P::kErfcxPole), hn::Set(d, T(1)));
  const V ratio = hn::Mul(hn::Mul(t, polynomial(d, z, P::kErfcx)), r);
  // Near zero, 1/2 less the integral from 0 to t is the better formula.
  const V near_q = hn::NegMulAdd(t, polynomial(d, square.hi, P::kGaussian), hn::Set(d, T(0.5)));
  const V tail = hn::IfThenElse(hn::Lt(t, hn::Set(d, T(1))), hn::Mul(t, near_q), hn::Mul(ratio, decay));
  const V step = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, T(1)));
  return hn::MulSub(x, step, hn::IfThenElseZero(has_tail, tail));
}

// The rest of gelu for floats, some of which are beyond the short tail: `near` holds the short tail's results. An
// element's result does not depend on its neighbours.
template <class D, class V, size_t kCount>
HWY_NOINLINE void gelu_beyond_short_tail(D d, const V (&x)[kCount], V (&near)[kCount]) {
  for (size_t i = 0; i < kCount; ++i) {
    // From 5.6 on the tail is less than half a unit in x's last place.
    const auto is_itself = hn::Ge(x[i], hn::Set(d, 5.6f)),
               is_short = hn::Lt(distance_to_short_tail(d, x[i]), hn::Set(d, kShortTail));
    near[i] = hn::IfThenElse(is_itself, x[i], near[i]);
    if (hn::AllTrue(d, hn::Or(is_itself, is_short))) continue;
    near[i] = hn::IfThenElse(hn::Or(is_itself, is_short), near[i], gelu_with_long_tail(d, x[i]));
  }
}

// Several vectors at once: one test of their range, and enough independent work to keep the processor busy.
template <class D, class V, size_t kCount>
HWY_INLINE void gelu(D d, V (&x)[kCount]) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    V in[kCount], largest = distance_to_short_tail(d, x[0]);
    for (size_t i = 0; i < kCount; ++i) in[i] = x[i];
    for (size_t i = 1; i < kCount; ++i) largest = hn::Max(largest, distance_to_short_tail(d, x[i]));
    gelu_with_short_tail(d, x);
    // A NaN may pass unseen: it goes through either formula.
    if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(largest, hn::Set(d, kShortTail))))) return;
    gelu_beyond_short_tail(d, in, x);
  } else {
    for (V& v : x) v = gelu_with_long_tail(d, v);
  }
}

template <class D, class V>
HWY_INLINE V gelu(D d, V x) {
  V one[] = {x};
  gelu(d, one);
  return one[0];
}

// erfc(t) = exp(-t^2) P(z) / (t + pole) for t >= 0, with the roundings of all but P(z) carried along.
template <class D, class V>
HWY_INLINE V erfc_of_magnitude(D d, V t) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  t = at_most(d, t, sizeof(T) == 4 ? T(10.1) : T(27.3));
  const Pair<V> square = two_product(t, t);
  const ScaledPair<V> decay = exp_scaled(d, hn::Neg(square.hi), hn::Neg(square.lo));
  const V pole = hn::Set(d, P::kErfcxPole);
  const Pair<V> denominator = two_sum(t, pole);
  const V r = quick_reciprocal(d, denominator.hi);
  const Pair<V> numerator = two_sum(t, hn::Neg(pole));
  const V z = hn::Mul(numerator.hi, r);
  const V z_error = hn::Mul(
      hn::Add(hn::NegMulAdd(denominator.hi, z, numerator.hi), hn::NegMulAdd(denominator.lo, z, numerator.lo)), r);
  // The last two steps of Horner's rule in pairs; c[1] + 2 c[2] z + ... is near enough to P' for the error of z.
  const Pair<V> inner = two_product(z, polynomial<2>(d, z, P::kErfcx));
  Pair<V> p = fast_two_sum(hn::Set(d, P::kErfcx[1]), inner.hi);
  const Pair<V> outer = two_product(z, p.hi);
  const V rest = hn::MulAdd(z_error, hn::Add(p.hi, inner.hi), hn::MulAdd(z, hn::Add(p.lo, inner.lo), outer.lo));
  p = fast_two_sum(hn::Set(d, P::kErfcx[0]), outer.hi);
  p.lo = hn::Add(p.lo, rest);
  Pair<V> product = two_product(decay.value.hi, p.hi);
  product.lo = hn::MulAdd(decay.value.hi, p.lo, hn::MulAdd(decay.value.lo, p.hi, product.lo));
  const V q = hn::Mul(product.hi, r);
  const V remainder =
      hn::Add(hn::NegMulAdd(denominator.hi, q, product.hi), hn::NegMulAdd(denominator.lo, q, product.lo));
  return scale_by_pow2(d, hn::MulAdd(remainder, r, q), decay.exponent);
}

// erf of floats: from 1 on 1 - erfc, whose logarithm is a polynomial. The whole part of that is added to an exponent.
template <class D, class V>
HWY_INLINE V erf_of_floats(D d, V x) {
  using P = Polynomials<float>;
  const hn::RebindToUnsigned<D> du;  // exponents are added as bits, which may pass the sign
  const V one = hn::Set(d, 1.0f), magic = hn::Set(d, FloatFormat<float>::kRoundingMagic);
  const V first = hn::Set(d, P::kLogErfc[0]);
  const V magnitude = hn::Abs(x);
  const V u = hn::Sub(at_most(d, magnitude, 4.0f), one);  // from 4 on erf rounds to 1
  const V p = polynomial<1>(d, u, P::kLogErfc);
  const V shifted = hn::Add(hn::MulAdd(p, u, first), magic);
  const V f = hn::MulAdd(p, u, hn::Sub(first, hn::Sub(shifted, magic)));
  const V power = hn::MulAdd(polynomial(d, f, P::kExp2OfTail), f, one);
  const V tail = hn::BitCast(d, hn::Add(hn::BitCast(du, power), hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
  const V far = hn::CopySign(hn::Sub(one, tail), x);
  return hn::IfThenElse(hn::Ge(magnitude, one), far, erf_near_zero(d, x));  // NaN comes from near zero
}

template <class D, class V>
HWY_INLINE V erf(D d, V x) {
  if constexpr (FloatLanes<D>) {
    return erf_of_floats(d, x);
  } else {
    return erf_by_table(d, x);
  }
}

template <class D, class V>
HWY_INLINE V erfc(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  const V tail = erfc_of_magnitude(d, hn::Abs(x));
  const V far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(hn::Set(d, T(2)), tail), tail);
  const Pair<V> erf = fast_two_sum(x, hn::Mul(x, polynomial(d, hn::Mul(x, x), Polynomials<T>::kErf)));
  const Pair<V> difference = fast_two_sum(one, hn::Neg(erf.hi));
  const V near = hn::Add(difference.hi, hn::Sub(difference.lo, erf.lo));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, T(0.75))), near, far);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_GAUSSIAN_INL_H_
