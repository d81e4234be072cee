// Building blocks of the vector math: polynomials, exponent arithmetic, error-free sums and products, and the two
// ways out of a vector (through doubles, through scalars). Lane-wise throughout: a lane's result never depends on its
// neighbours or on its position.

#if defined(MICA_CPU_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_LANES_INL_H_
#undef MICA_CPU_SIMD_LANES_INL_H_
#else
#define MICA_CPU_SIMD_LANES_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"

#include "backends/cpu/simd/polynomials.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if !HWY_NATIVE_FMA
#error "the vector math relies on fused multiply-add for its error-free products"
#endif

#undef MICA_SIMD_AVX512
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define MICA_SIMD_AVX512 1
#else
#define MICA_SIMD_AVX512 0
#endif

template <class D>
concept FloatLanes = std::is_same_v < hn::TFromD<D>,
float > ;
template <class D>
concept DoubleLanes = std::is_same_v < hn::TFromD<D>,
double > ;

template <class T>
struct FloatFormat;

template <>
struct FloatFormat<float> {
  static constexpr int kMantissaBits = 23;
  static constexpr int kBias = 127;
  static constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer
};

template <>
struct FloatFormat<double> {
  static constexpr int kMantissaBits = 52;
  static constexpr int kBias = 1023;
  static constexpr double kRoundingMagic = 6755399441055744.0;  // 1.5 * 2^52
};

template <class D>
HWY_INLINE hn::VFromD<D> infinity(D d) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::infinity());
}

template <class D>
HWY_INLINE hn::VFromD<D> quiet_nan(D d) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN());
}

// c[0] + c[1] x + c[2] x^2 + ...
template <size_t I = 0, class D, class V, size_t N>
HWY_INLINE V polynomial(D d, V x, const hn::TFromD<D> (&c)[N]) {
  if constexpr (I + 1 == N) {
    return hn::Set(d, c[I]);
  } else {
    return hn::MulAdd(polynomial<I + 1>(d, x, c), x, hn::Set(d, c[I]));
  }
}

// The smaller and the larger of two floats. The result is NaN where y is NaN. Where only x is NaN, x86 gives y and NEON
// gives NaN. Highway's own Min and Max do not serve on NEON: they give the number where one of the two is NaN.
#if HWY_ARCH_ARM_A64
#define MICA_SIMD_NAN_EXTREME(NAME, INSTRUCTION)                                            \
  HWY_INLINE hn::Vec128<float> NAME(hn::Vec128<float> x, hn::Vec128<float> y) {             \
    return hn::Vec128<float>(v##INSTRUCTION##q_f32(x.raw, y.raw));                          \
  }                                                                                         \
  HWY_INLINE hn::Vec128<double> NAME(hn::Vec128<double> x, hn::Vec128<double> y) {          \
    return hn::Vec128<double>(v##INSTRUCTION##q_f64(x.raw, y.raw));                         \
  }                                                                                         \
  template <size_t N, HWY_IF_LE64(float, N)>                                                \
  HWY_INLINE hn::Vec128<float, N> NAME(hn::Vec128<float, N> x, hn::Vec128<float, N> y) {    \
    return hn::Vec128<float, N>(v##INSTRUCTION##_f32(x.raw, y.raw));                        \
  }                                                                                         \
  HWY_INLINE hn::Vec128<double, 1> NAME(hn::Vec128<double, 1> x, hn::Vec128<double, 1> y) { \
    return hn::Vec128<double, 1>(v##INSTRUCTION##_f64(x.raw, y.raw));                       \
  }
MICA_SIMD_NAN_EXTREME(smaller_or_nan, min)
MICA_SIMD_NAN_EXTREME(larger_or_nan, max)
#undef MICA_SIMD_NAN_EXTREME
#else
template <class V>
HWY_INLINE V smaller_or_nan(V x, V y) {
  return hn::Min(x, y);
}
template <class V>
HWY_INLINE V larger_or_nan(V x, V y) {
  return hn::Max(x, y);
}
#endif

// Bounds that let a NaN through.
template <class D, class V>
HWY_INLINE V at_most(D d, V x, hn::TFromD<D> bound) {
  return smaller_or_nan(hn::Set(d, bound), x);
}

template <class D, class V>
HWY_INLINE V at_least(D d, V x, hn::TFromD<D> bound) {
  return larger_or_nan(hn::Set(d, bound), x);
}

template <class D, class V>
HWY_INLINE V negative_abs(D d, V x) {
  return hn::Or(x, hn::SignBit(d));
}

// The integer nearest to x * factor; |x * factor| must stay below 2^22 (float) or 2^51 (double).
template <class D, class V>
HWY_INLINE V nearest_multiple(D d, V x, hn::TFromD<D> factor) {
  const V magic = hn::Set(d, FloatFormat<hn::TFromD<D>>::kRoundingMagic);
  return hn::Sub(hn::MulAdd(x, hn::Set(d, factor), magic), magic);
}

#if MICA_SIMD_AVX512
#define MICA_SIMD_WRAP_UNARY(NAME, SUFFIX512, SUFFIX256, SUFFIX128)                                     \
  HWY_INLINE hn::Vec512<float> NAME(hn::Vec512<float> x) { return {_mm512_##SUFFIX512##_ps(x.raw)}; }   \
  HWY_INLINE hn::Vec512<double> NAME(hn::Vec512<double> x) { return {_mm512_##SUFFIX512##_pd(x.raw)}; } \
  HWY_INLINE hn::Vec256<float> NAME(hn::Vec256<float> x) { return {_mm256_##SUFFIX256##_ps(x.raw)}; }   \
  HWY_INLINE hn::Vec256<double> NAME(hn::Vec256<double> x) { return {_mm256_##SUFFIX256##_pd(x.raw)}; } \
  template <size_t N>                                                                                   \
  HWY_INLINE hn::Vec128<float, N> NAME(hn::Vec128<float, N> x) {                                        \
    return hn::Vec128<float, N>{_mm_##SUFFIX128##_ps(x.raw)};                                           \
  }                                                                                                     \
  template <size_t N>                                                                                   \
  HWY_INLINE hn::Vec128<double, N> NAME(hn::Vec128<double, N> x) {                                      \
    return hn::Vec128<double, N>{_mm_##SUFFIX128##_pd(x.raw)};                                          \
  }

MICA_SIMD_WRAP_UNARY(native_exponent, getexp, getexp, getexp)
MICA_SIMD_WRAP_UNARY(native_reciprocal_estimate, rcp14, rcp14, rcp14)
MICA_SIMD_WRAP_UNARY(native_inverse_root_estimate, rsqrt14, rsqrt14, rsqrt14)
#undef MICA_SIMD_WRAP_UNARY

// The mantissa scaled into [0.75, 1.5), with a NaN for negative x.
HWY_INLINE hn::Vec512<float> native_mantissa(hn::Vec512<float> x) {
  return {_mm512_getmant_ps(x.raw, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan)};
}
HWY_INLINE hn::Vec512<double> native_mantissa(hn::Vec512<double> x) {
  return {_mm512_getmant_pd(x.raw, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan)};
}
HWY_INLINE hn::Vec256<float> native_mantissa(hn::Vec256<float> x) {
  return {_mm256_getmant_ps(x.raw, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan)};
}
HWY_INLINE hn::Vec256<double> native_mantissa(hn::Vec256<double> x) {
  return {_mm256_getmant_pd(x.raw, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan)};
}
template <size_t N>
HWY_INLINE hn::Vec128<float, N> native_mantissa(hn::Vec128<float, N> x) {
  return hn::Vec128<float, N>{_mm_getmant_ps(x.raw, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan)};
}
template <size_t N>
HWY_INLINE hn::Vec128<double, N> native_mantissa(hn::Vec128<double, N> x) {
  return hn::Vec128<double, N>{_mm_getmant_pd(x.raw, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan)};
}

HWY_INLINE hn::Vec512<float> native_scale(hn::Vec512<float> v, hn::Vec512<float> n) {
  return {_mm512_scalef_ps(v.raw, n.raw)};
}
HWY_INLINE hn::Vec512<double> native_scale(hn::Vec512<double> v, hn::Vec512<double> n) {
  return {_mm512_scalef_pd(v.raw, n.raw)};
}
HWY_INLINE hn::Vec256<float> native_scale(hn::Vec256<float> v, hn::Vec256<float> n) {
  return {_mm256_scalef_ps(v.raw, n.raw)};
}
HWY_INLINE hn::Vec256<double> native_scale(hn::Vec256<double> v, hn::Vec256<double> n) {
  return {_mm256_scalef_pd(v.raw, n.raw)};
}
template <size_t N>
HWY_INLINE hn::Vec128<float, N> native_scale(hn::Vec128<float, N> v, hn::Vec128<float, N> n) {
  return hn::Vec128<float, N>{_mm_scalef_ps(v.raw, n.raw)};
}
template <size_t N>
HWY_INLINE hn::Vec128<double, N> native_scale(hn::Vec128<double, N> v, hn::Vec128<double, N> n) {
  return hn::Vec128<double, N>{_mm_scalef_pd(v.raw, n.raw)};
}
#endif  // MICA_SIMD_AVX512

// v * 2^n for integral n, rounded once: overflows to infinity, underflows gradually. v of ordinary magnitude,
// |n| at most 250 (float) or 2040 (double).
template <class D, class V>
HWY_INLINE V scale_by_pow2(D d, V v, V n) {
#if MICA_SIMD_AVX512
  (void)d;
  return native_scale(v, n);
#else
  using T = hn::TFromD<D>;
  using Format = FloatFormat<T>;
  const hn::RebindToUnsigned<D> du;
  // The low bits of magic + bias + k hold the exponent field of 2^k. Two factors, because 2^n itself may not exist.
  const V magic = hn::Set(d, Format::kRoundingMagic + Format::kBias);
  const V half = hn::MulAdd(n, hn::Set(d, T(0.5)), magic);
  const V rest = hn::Sub(n, hn::Sub(half, magic));
  const V first = hn::BitCast(d, hn::ShiftLeft<Format::kMantissaBits>(hn::BitCast(du, half)));
  const V second = hn::BitCast(d, hn::ShiftLeft<Format::kMantissaBits>(hn::BitCast(du, hn::Add(rest, magic))));
  return hn::Mul(hn::Mul(v, first), second);
#endif
}

// x = mantissa * 2^exponent with mantissa in [0.75, 1.5), for positive finite x, subnormals included. Other x give
// values without meaning that callers replace.
template <class V>
struct Decomposed {
  V mantissa, exponent;
};

template <class D, class V>
HWY_INLINE Decomposed<V> decompose(D d, V x) {
#if MICA_SIMD_AVX512
  (void)d;
  const V mantissa = native_mantissa(x);
  return {mantissa, hn::Sub(native_exponent(x), native_exponent(mantissa))};
#else
  using T = hn::TFromD<D>;
  using Format = FloatFormat<T>;
  const hn::RebindToUnsigned<D> du;
  using U = hn::TFromD<decltype(du)>;
  const auto subnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<T>::min()));
  const V magnified = hn::Mul(x, hn::Set(d, T(U(1) << (Format::kMantissaBits + 1))));
  x = hn::IfThenElse(subnormal, magnified, x);
  const V shift = hn::IfThenElseZero(subnormal, hn::Set(d, T(Format::kMantissaBits + 1)));
  // Adding half a binade carries into the exponent field exactly when the mantissa is 1.5 or more.
  const auto bits = hn::BitCast(du, x);
  const auto half_step = hn::Set(du, U(1) << (Format::kMantissaBits - 1));
  const auto exponent_bits = hn::ShiftRight<Format::kMantissaBits>(hn::Add(bits, half_step));
  const auto bias = hn::Set(du, U(Format::kBias));
  const auto unbiased = hn::ShiftLeft<Format::kMantissaBits>(hn::Sub(exponent_bits, bias));
  // The exponent field, as a float, without an integer conversion (which AVX2 lacks for 64 bits).
  const V magic = hn::Set(d, Format::kRoundingMagic);
  const V field = hn::Sub(hn::BitCast(d, hn::Or(exponent_bits, hn::BitCast(du, magic))), magic);
  const V exponent = hn::Sub(hn::Sub(field, hn::Set(d, T(Format::kBias))), shift);
  return {hn::BitCast(d, hn::Sub(bits, unbiased)), exponent};
#endif
}

// 1 / v for v of ordinary magnitude (1 / v neither overflows nor is subnormal), within about 1 ulp. AVX-512's divider
// is the slowest unit of all; an estimate refined with FMA takes a quarter of its time.
template <class D, class V>
HWY_INLINE V quick_reciprocal(D d, V v) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
#if MICA_SIMD_AVX512
  V r = native_reciprocal_estimate(v);
  r = hn::MulAdd(r, hn::NegMulAdd(v, r, one), r);
  if constexpr (sizeof(hn::TFromD<D>) == 8) r = hn::MulAdd(r, hn::NegMulAdd(v, r, one), r);
  return r;
#else
  return hn::Div(one, v);
#endif
}

// n / v within 0.52 ulp, from r = quick_reciprocal(v). The signs are such that a zero keeps its own.
template <class V>
HWY_INLINE V refined_quotient(V n, V v, V r) {
  const V q = hn::Mul(n, r);
  return hn::NegMulAdd(hn::MulSub(v, q, n), r, q);
}

// An estimate of 1 / v under the conditions of quick_reciprocal, for quotients that are corrected by their remainder.
// Its relative error is below 2^-14 with AVX-512, where processors differ in the bits that are wrong.
template <class D, class V>
HWY_INLINE V reciprocal_estimate([[maybe_unused]] D d, V v) {
#if MICA_SIMD_AVX512
  if constexpr (FloatLanes<D>) return native_reciprocal_estimate(v);
#endif
  return quick_reciprocal(d, v);
}

// n / v for finite n and v of ordinary magnitude, within 0.57 ulp: the remainder of the first quotient is exact but for
// 2^-24 of it, and is divided by an estimate that is wrong by 2^-14 of it.
template <class D, class V>
HWY_INLINE V corrected_quotient(D d, V n, V v) {
#if MICA_SIMD_AVX512
  return refined_quotient(n, v, reciprocal_estimate(d, v));
#else
  (void)d;
  return hn::Div(n, v);
#endif
}

// n / v for finite n and v of ordinary magnitude.
template <class D, class V>
HWY_INLINE V quotient(D d, V n, V v) {
#if MICA_SIMD_AVX512
  return refined_quotient(n, v, quick_reciprocal(d, v));
#else
  (void)d;
  return hn::Div(n, v);
#endif
}

// An unevaluated sum hi + lo with |lo| at most about half an ulp of hi.
template <class V>
struct Pair {
  V hi, lo;
};

// value * 2^exponent, or exponent * log(2) + value.
template <class V>
struct ScaledPair {
  Pair<V> value;
  V exponent;
};

// Exactly a + b, for |a| >= |b| or a == 0.
template <class V>
HWY_INLINE Pair<V> fast_two_sum(V a, V b) {
  const V sum = hn::Add(a, b);
  return {sum, hn::Sub(b, hn::Sub(sum, a))};
}

// Exactly a + b.
template <class V>
HWY_INLINE Pair<V> two_sum(V a, V b) {
  const V sum = hn::Add(a, b);
  const V from_b = hn::Sub(sum, a);
  return {sum, hn::Add(hn::Sub(a, hn::Sub(sum, from_b)), hn::Sub(b, from_b))};
}

// Exactly a * b, barring underflow.
template <class V>
HWY_INLINE Pair<V> two_product(V a, V b) {
  const V product = hn::Mul(a, b);
  return {product, hn::MulSub(a, b, product)};
}

// n / v for pairs under the conditions of quotient(), rounded nearly as if exact.
template <class D, class V>
HWY_INLINE V quotient_of_pairs(D d, Pair<V> n, Pair<V> v) {
  const V r = quick_reciprocal(d, v.hi);
  const V q = hn::Mul(n.hi, r);
  const V remainder = hn::Add(hn::NegMulAdd(v.hi, q, n.hi), hn::NegMulAdd(v.lo, q, n.lo));
  return hn::MulAdd(remainder, r, q);
}

// f applied to float lanes as doubles, rounded back once.
template <class D, class F>
HWY_INLINE hn::VFromD<D> through_double(D d, hn::VFromD<D> x, F f) {
  if constexpr (hn::MaxLanes(D()) * sizeof(double) <= HWY_MAX_BYTES) {
    const hn::Rebind<double, D> dd;
    return hn::DemoteTo(d, f(dd, hn::PromoteTo(dd, x)));
  } else {
    const hn::Half<D> dh;
    const hn::Rebind<double, decltype(dh)> dd;
    const auto lower = f(dd, hn::PromoteTo(dd, hn::LowerHalf(dh, x)));
    const auto upper = f(dd, hn::PromoteTo(dd, hn::UpperHalf(dh, x)));
    return hn::Combine(d, hn::DemoteTo(dh, upper), hn::DemoteTo(dh, lower));
  }
}

template <class D, class F>
HWY_INLINE hn::VFromD<D> through_double(D d, hn::VFromD<D> x, hn::VFromD<D> y, F f) {
  if constexpr (hn::MaxLanes(D()) * sizeof(double) <= HWY_MAX_BYTES) {
    const hn::Rebind<double, D> dd;
    return hn::DemoteTo(d, f(dd, hn::PromoteTo(dd, x), hn::PromoteTo(dd, y)));
  } else {
    const hn::Half<D> dh;
    const hn::Rebind<double, decltype(dh)> dd;
    const auto lower = f(dd, hn::PromoteTo(dd, hn::LowerHalf(dh, x)), hn::PromoteTo(dd, hn::LowerHalf(dh, y)));
    const auto upper = f(dd, hn::PromoteTo(dd, hn::UpperHalf(dh, x)), hn::PromoteTo(dd, hn::UpperHalf(dh, y)));
    return hn::Combine(d, hn::DemoteTo(dh, upper), hn::DemoteTo(dh, lower));
  }
}

// The scalar function f on every lane.
template <class D, class F>
HWY_NOINLINE hn::VFromD<D> per_lane(D d, hn::VFromD<D> x, F f) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}

template <class D, class F>
HWY_NOINLINE hn::VFromD<D> per_lane(D d, hn::VFromD<D> x, hn::VFromD<D> y, F f) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  HWY_ALIGN T others[hn::MaxLanes(D())];
  hn::Store(x, d, lanes);
  hn::Store(y, d, others);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i], others[i]);
  return hn::Load(d, lanes);
}

// Tells the compiler that a branch is rarely taken.
template <class D, class M>
HWY_INLINE bool any_lane(D d, M mask) {
  return HWY_UNLIKELY(!hn::AllFalse(d, mask));
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_LANES_INL_H_
