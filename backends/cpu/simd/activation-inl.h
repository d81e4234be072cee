// Sigmoid, tanh and the activation functions built from one exponential.

#if defined(MICA_CPU_SIMD_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_ACTIVATION_INL_H_
#undef MICA_CPU_SIMD_ACTIVATION_INL_H_
#else
#define MICA_CPU_SIMD_ACTIVATION_INL_H_
#endif

#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A parameter of the operation in every lane.
template <class D>
HWY_INLINE hn::VFromD<D> lanes_of(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

// With t = exp(-|x|) in (0, 1] nothing overflows and the denominator 1 + t, an exact pair, stays in [1, 2].
template <class D, class V>
HWY_INLINE V sigmoid_from_decay(D d, V x, V t) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), t, one);
  const Pair<V> denominator = fast_two_sum(one, t);
  const V r = reciprocal_estimate(d, denominator.hi);
  const V q = hn::Mul(numerator, r);
  const V remainder = hn::NegMulAdd(denominator.lo, q, hn::NegMulAdd(denominator.hi, q, numerator));
  return hn::MulAdd(remainder, r, q);
}

template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  return sigmoid_from_decay(d, x, exp_nonpositive(d, negative_abs(d, x)));
}

// Several vectors at once; each element's result is that of sigmoid.
template <class D, class V, size_t kCount>
HWY_INLINE void sigmoid(D d, V (&x)[kCount]) {
  if (have_normal_exp(d, x)) {
    V decay[kCount];
    for (size_t i = 0; i < kCount; ++i) decay[i] = negative_abs(d, x[i]);
    exp_of_normal(d, decay);
    for (size_t i = 0; i < kCount; ++i) x[i] = sigmoid_from_decay(d, x[i], decay[i]);
  } else {
    for (V& v : x) v = sigmoid(d, v);
  }
}

template <class T>
struct SiluAddends {
  static constexpr size_t kTerms = sizeof(Polynomials<T>::kExp) / sizeof(T);
  struct Series {
    T terms[kTerms];
  };
  static constexpr Series kAlternating = [] {
    Series series{};
    for (size_t i = 0; i < kTerms; ++i) series.terms[i] = i % 2 ? -Polynomials<T>::kExp[i] : Polynomials<T>::kExp[i];
    return series;
  }();
  static constexpr const T (&kSigned)[kTerms] = kAlternating.terms;
  static constexpr T kNumbers[] = {T(1), FloatFormat<T>::kRoundingMagic + FloatFormat<T>::kBias};
  static constexpr Addends kSeries{kAlternating.terms};
  static constexpr Addends kOthers{kNumbers};
};

// 1 + exp(-x) where exp(-x) is neither subnormal nor infinite. The power of two comes in with the last sum. The signs
// of the series stand for that of x.
template <class D, class V, size_t kCount>
HWY_INLINE void one_plus_exp_of_minus(D d, const V (&x)[kCount], V (&sum)[kCount]) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  using Format = FloatFormat<T>;
  using A = SiluAddends<T>;
  constexpr size_t kTerms = sizeof(P::kExp) / sizeof(T);
  const hn::RebindToUnsigned<D> du;
  V shifted[kCount], s[kCount];
  // The low bits of magic + bias + n hold the exponent's field of 2^n.
  const V magic = hn::Set(d, Format::kRoundingMagic + Format::kBias), minus_log2e = hn::Set(d, -P::kLog2E);
#define MICA_SIMD_EACH for (size_t k = 0; k < kCount; ++k)
  MICA_SIMD_EACH shifted[k] = hn::MulAdd(x[k], minus_log2e, A::kOthers.get(d, 1));
  MICA_SIMD_EACH sum[k] = hn::Sub(shifted[k], magic);
  MICA_SIMD_EACH s[k] = hn::MulAdd(sum[k], hn::Set(d, P::kLn2Hi), x[k]);
  MICA_SIMD_EACH s[k] = hn::MulAdd(sum[k], hn::Set(d, P::kLn2Lo), s[k]);
  MICA_SIMD_EACH sum[k] = hn::Set(d, A::kSigned[kTerms - 1]);
#pragma GCC unroll 16
  for (size_t i = 2; i <= kTerms; ++i) {
    MICA_SIMD_EACH sum[k] = hn::MulAdd(sum[k], s[k], A::kSeries.get(d, kTerms - i));
  }
  MICA_SIMD_EACH sum[k] = hn::NegMulAdd(sum[k], s[k], A::kOthers.get(d, 0));
  MICA_SIMD_EACH sum[k] = hn::NegMulAdd(sum[k], s[k], A::kOthers.get(d, 0));
  MICA_SIMD_EACH {
    const V power = hn::BitCast(d, hn::ShiftLeft<Format::kMantissaBits>(hn::BitCast(du, shifted[k])));
    sum[k] = hn::MulAdd(sum[k], power, A::kOthers.get(d, 0));
  }
#undef MICA_SIMD_EACH
}

template <class D, class V>
HWY_NOINLINE V far_silu(D d, V x) {
  return hn::Mul(x, sigmoid(d, x));
}

template <class D, class V>
HWY_INLINE V silu(D d, V x) {
  const auto normal = hn::Lt(hn::Abs(x), hn::Set(d, kExpNormal<hn::TFromD<D>>));
  const V in[] = {hn::IfThenElseZero(normal, x)};
  V denominator[1];
  one_plus_exp_of_minus(d, in, denominator);
  const V near = corrected_quotient(d, in[0], denominator[0]);
  if (HWY_LIKELY(hn::AllTrue(d, normal))) return near;
  return hn::IfThenElse(normal, near, far_silu(d, x));  // for numbers far from zero, and NaN
}

// Several vectors at once; each element's result is that of silu. Where the sum of their squares is small, all are near
// zero and none is NaN.
template <class D, class V, size_t kCount>
HWY_INLINE void silu(D d, V (&x)[kCount]) {
  constexpr auto kNear = kExpNormal<hn::TFromD<D>> - 1;
  V squares = hn::Mul(x[0], x[0]);
  for (size_t i = 1; i < kCount; ++i) squares = hn::MulAdd(x[i], x[i], squares);
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(squares, hn::Set(d, kNear * kNear))))) {
    V denominators[kCount];
    one_plus_exp_of_minus(d, x, denominators);
    for (size_t i = 0; i < kCount; ++i) x[i] = corrected_quotient(d, x[i], denominators[i]);
  } else {
    for (V& v : x) v = silu(d, v);
  }
}

// With 2|x| = n log(2) + r and s = 2^-n: tanh|x| = ((1 - s) + expm1(r)) / ((1 + s) + expm1(r)). Numerator and
// denominator are pairs, so the quotient's rounding is nearly the only one; there is no other case to blend in.
template <class D, class V>
HWY_INLINE V tanh_by_exp(D d, V x) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const hn::RebindToUnsigned<D> du;
  using U = hn::TFromD<decltype(du)>;
  constexpr int kShift = FloatFormat<T>::kMantissaBits;
  const V one = hn::Set(d, T(1));
  // Where tanh rounds to 1.
  const V y = at_most(d, hn::Abs(x), sizeof(T) == 4 ? T(10) : T(20));
  const V twice = hn::Add(y, y);
  const V magic = hn::Set(d, FloatFormat<T>::kRoundingMagic);
  const V shifted = hn::MulAdd(twice, hn::Set(d, P::kLog2E), magic);
  const V n = hn::Sub(shifted, magic);
  const auto n_field = hn::ShiftLeft<kShift>(hn::BitCast(du, shifted));
  const V s = hn::BitCast(d, hn::Sub(hn::Set(du, U(FloatFormat<T>::kBias) << kShift), n_field));
  const Expm1Parts<V> parts = expm1_of_remainder(d, twice, n);
  const Pair<V> e = fast_two_sum(parts.leading, parts.tail);
  const V minus = hn::Sub(one, s);
  const V plus = hn::Add(one, s);
  const Pair<V> above = fast_two_sum(minus, e.hi);
  const Pair<V> below = fast_two_sum(plus, e.hi);
  // Where the quotient is nearly 1, 1 - s and 1 + s may be rounded; their difference must still be 2 s.
  const V lost = hn::NegMulAdd(hn::Set(d, T(2)), s, hn::Sub(plus, minus));
  const V result = quotient_of_pairs(d, Pair<V>{above.hi, hn::Add(above.lo, hn::Add(e.lo, lost))},
                                     Pair<V>{below.hi, hn::Add(below.lo, e.lo)});
  return hn::CopySignToAbs(result, x);
}

#if MICA_SIMD_AVX512
// A polynomial per quarter of a binade, its coefficients looked up in registers: half the work of tanh_by_exp.
HWY_INLINE __m512 tanh_by_pieces(__m512 x) {
  const __m512 t = _mm512_min_ps(_mm512_set1_ps(9.5f), _mm512_abs_ps(x));  // tanh rounds to 1; NaN passes
  // Exponent and two bits of mantissa count the pieces, of which number 1 begins at 2^-4.
  constexpr int kFirst = ((127 - 4) << 2) - 1;
  const __m512i piece =
      _mm512_max_epi32(_mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(t), 21), _mm512_set1_epi32(kFirst)),
                       _mm512_setzero_si512());
  const auto row = [piece](int i) HWY_ATTR {
    const float* table = TanhPieces::kTable[i];
    return _mm512_permutex2var_ps(_mm512_load_ps(table), piece, _mm512_load_ps(table + 16));
  };
  const __m512 r = _mm512_sub_ps(t, row(0));
  __m512 p = row(6);
  p = _mm512_fmadd_ps(p, r, row(5));
  p = _mm512_fmadd_ps(p, r, row(4));
  p = _mm512_fmadd_ps(p, r, row(3));
  p = _mm512_fmadd_ps(p, r, row(2));
  const __mmask16 near_zero = _mm512_testn_epi32_mask(piece, piece);
  const __m512 y = _mm512_fmadd_ps(p, r, _mm512_mask_mov_ps(row(1), near_zero, r));
  // Everything but the sign bit from y, the sign bit from x.
  const __m512i sign = _mm512_set1_epi32(INT32_MIN);
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(sign, _mm512_castps_si512(x), _mm512_castps_si512(y), 0xCA));
}

HWY_INLINE hn::Vec512<float> tanh_of_floats(hn::Vec512<float> x) { return hn::Vec512<float>{tanh_by_pieces(x.raw)}; }
HWY_INLINE hn::Vec256<float> tanh_of_floats(hn::Vec256<float> x) {
  return hn::Vec256<float>{_mm512_castps512_ps256(tanh_by_pieces(_mm512_castps256_ps512(x.raw)))};
}
template <size_t N>
HWY_INLINE hn::Vec128<float, N> tanh_of_floats(hn::Vec128<float, N> x) {
  return hn::Vec128<float, N>{_mm512_castps512_ps128(tanh_by_pieces(_mm512_castps128_ps512(x.raw)))};
}
#endif

template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
#if MICA_SIMD_AVX512
  if constexpr (FloatLanes<D>) return tanh_of_floats(x);
  if constexpr (DoubleLanes<D>) return tanh_by_table(d, x);
#endif
  return tanh_by_exp(d, x);
}

// torch's approximate="tanh": x / 2 (1 + tanh(v)) with v = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2 v).
template <class D, class V>
HWY_INLINE V gelu_tanh(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr T kLinear = T(1.5957691216057307117597842397375);
  constexpr T kCubic = T(0.071354816272600246566431);
  const V v = hn::Mul(x, hn::MulAdd(hn::Mul(x, x), hn::Set(d, kCubic), hn::Set(d, kLinear)));
  return hn::Mul(x, sigmoid(d, v));
}

// x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2). From 20 (float: 9) on the fraction rounds to 1.
template <class D, class V>
HWY_INLINE V mish(D d, V x) {
  using T = hn::TFromD<D>;
  const V two = hn::Set(d, T(2));
  const V e = exp_in_range(d, at_least(d, at_most(d, x, T(22)), kExpUnderflow<T>));
  const V n = hn::Mul(e, hn::Add(e, two));
  return hn::Mul(x, quotient(d, n, hn::Add(n, two)));
}

// log(1 + exp(-|x|)), the part of softplus, log_sigmoid and logaddexp that decays away from zero.
template <class D, class V>
HWY_INLINE V log1p_exp_neg_abs(D d, V x) {
  return log1p(d, exp_nonpositive(d, negative_abs(d, x)));
}

// log(1 + exp(x)) without overflow.
template <class D, class V>
HWY_INLINE V log1p_exp(D d, V x) {
  return hn::Add(larger_or_nan(hn::Zero(d), x), log1p_exp_neg_abs(d, x));
}

template <class D, class V>
HWY_INLINE V log_sigmoid(D d, V x) {
  return hn::Sub(smaller_or_nan(hn::Zero(d), x), log1p_exp_neg_abs(d, x));
}

// log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold.
template <class D, class V>
HWY_INLINE V softplus(D d, V x, V beta, V threshold) {
  const V scaled = hn::Mul(x, beta);
  return hn::IfThenElse(hn::Gt(scaled, threshold), x, hn::Div(log1p_exp(d, scaled), beta));
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_ACTIVATION_INL_H_
