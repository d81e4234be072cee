// exp, exp2, expm1 and the exponentials with a sum that softmax needs.

#if defined(MICA_CPU_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_EXP_INL_H_
#undef MICA_CPU_SIMD_EXP_INL_H_
#else
#define MICA_CPU_SIMD_EXP_INL_H_
#endif

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/memory-inl.h"
#include "backends/cpu/simd/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Constants that are addends of multiply-adds. NEON's multiply-add overwrites its addend, so a constant in a register
// would be copied first, on the units that multiply. There it is loaded each time, on other units.
template <class T, size_t N>
struct Addends {
  static constexpr size_t kLanes = 16 / sizeof(T);
  alignas(16) T lanes[N][kLanes] = {};

  constexpr explicit Addends(const T (&constants)[N]) {
    for (size_t i = 0; i < N; ++i) {
      for (T& lane : lanes[i]) lane = constants[i];
    }
  }
  template <class D>
  HWY_INLINE hn::VFromD<D> get(D d, size_t i) const {
#if HWY_ARCH_ARM_A64
    if constexpr (hn::MaxLanes(D()) == kLanes) {
      const T* from = lanes[i];
      asm volatile("" : "+r"(from));  // keeps the compiler from loading once and copying
      return hn::LoadU(d, from);
    }
#endif
    return hn::Set(d, lanes[i][0]);
  }
};

// Where exp reaches infinity and zero; beyond them the reduction below would leave its range.
template <class T>
inline constexpr T kExpOverflow = sizeof(T) == 4 ? T(89) : T(710);
template <class T>
inline constexpr T kExpUnderflow = sizeof(T) == 4 ? T(-104) : T(-746);

// exp(x + correction) for x between kExpUnderflow and kExpOverflow and a correction of at most an ulp or so of x.
template <class D, class V>
HWY_INLINE V exp_in_range(D d, V x, V correction) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const V one = hn::Set(d, T(1));
  const V n = nearest_multiple(d, x, P::kLog2E);
  V r = hn::NegMulAdd(n, hn::Set(d, P::kLn2Hi), x);
  r = hn::NegMulAdd(n, hn::Set(d, P::kLn2Lo), r);
  r = hn::Add(r, correction);
  V p = polynomial(d, r, P::kExp);
  p = hn::MulAdd(p, r, one);
  return scale_by_pow2(d, hn::MulAdd(p, r, one), n);
}

template <class D, class V>
HWY_INLINE V exp_in_range(D d, V x) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const V one = hn::Set(d, T(1));
  const V n = nearest_multiple(d, x, P::kLog2E);
  V r = hn::NegMulAdd(n, hn::Set(d, P::kLn2Hi), x);
  r = hn::NegMulAdd(n, hn::Set(d, P::kLn2Lo), r);
  V p = polynomial(d, r, P::kExp);
  p = hn::MulAdd(p, r, one);
  return scale_by_pow2(d, hn::MulAdd(p, r, one), n);
}

template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  using T = hn::TFromD<D>;
#if MICA_SIMD_AVX512
  if constexpr (DoubleLanes<D>) return exp_by_table(d, x);
#endif
  return exp_in_range(d, at_least(d, at_most(d, x, kExpOverflow<T>), kExpUnderflow<T>));
}

// exp for x whose exp is neither subnormal nor infinite: the power of two then is added to the exponent's field.
template <class T>
inline constexpr T kExpNormal = sizeof(T) == 4 ? T(87) : T(708);

template <class D, class V>
HWY_INLINE V exp_of_normal(D d, V x) {
#if MICA_SIMD_AVX512
  return exp_in_range(d, x);
#else
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, T(1)), magic = hn::Set(d, FloatFormat<T>::kRoundingMagic);
  const V shifted = hn::MulAdd(x, hn::Set(d, P::kLog2E), magic), n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, P::kLn2Hi), x);
  r = hn::NegMulAdd(n, hn::Set(d, P::kLn2Lo), r);
  V p = polynomial(d, r, P::kExp);
  p = hn::MulAdd(p, r, one);
  p = hn::MulAdd(p, r, one);
  return hn::BitCast(
      d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<FloatFormat<T>::kMantissaBits>(hn::BitCast(di, shifted))));
#endif
}

template <class T>
struct ExpAddends {
  static constexpr T kOnes[] = {T(1), FloatFormat<T>::kRoundingMagic};
  static constexpr Addends kSeries{Polynomials<T>::kExp};
  static constexpr Addends kOthers{kOnes};
};

// The same for several vectors. With NEON they go through each step together: otherwise few of its short vectors would
// be under way at once.
template <class D, class V, size_t kCount>
HWY_INLINE void exp_of_normal(D d, V (&x)[kCount]) {
#if HWY_ARCH_ARM_A64
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  constexpr size_t kTerms = sizeof(P::kExp) / sizeof(T);
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, FloatFormat<T>::kRoundingMagic);
  V shifted[kCount], p[kCount];
#define MICA_SIMD_EACH for (size_t k = 0; k < kCount; ++k)
  MICA_SIMD_EACH shifted[k] = hn::MulAdd(x[k], hn::Set(d, P::kLog2E), ExpAddends<T>::kOthers.get(d, 1));
  MICA_SIMD_EACH p[k] = hn::Sub(shifted[k], magic);
  MICA_SIMD_EACH x[k] = hn::NegMulAdd(p[k], hn::Set(d, P::kLn2Hi), x[k]);
  MICA_SIMD_EACH x[k] = hn::NegMulAdd(p[k], hn::Set(d, P::kLn2Lo), x[k]);
  MICA_SIMD_EACH p[k] = hn::Set(d, P::kExp[kTerms - 1]);
#pragma GCC unroll 16
  for (size_t i = 2; i <= kTerms; ++i) {
    MICA_SIMD_EACH p[k] = hn::MulAdd(p[k], x[k], ExpAddends<T>::kSeries.get(d, kTerms - i));
  }
  MICA_SIMD_EACH p[k] = hn::MulAdd(p[k], x[k], ExpAddends<T>::kOthers.get(d, 0));
  MICA_SIMD_EACH p[k] = hn::MulAdd(p[k], x[k], ExpAddends<T>::kOthers.get(d, 0));
  MICA_SIMD_EACH x[k] = hn::BitCast(
      d, hn::Add(hn::BitCast(di, p[k]), hn::ShiftLeft<FloatFormat<T>::kMantissaBits>(hn::BitCast(di, shifted[k]))));
#undef MICA_SIMD_EACH
#else
  for (V& v : x) v = exp_of_normal(d, v);
#endif
}

// Whether exp_of_normal takes all lanes of all x, none of them NaN.
template <class D, class V, size_t kCount>
HWY_INLINE bool have_normal_exp(D d, const V (&x)[kCount]) {
  V largest = hn::Abs(x[0]);
  for (size_t i = 1; i < kCount; ++i) largest = larger_or_nan(largest, hn::Abs(x[i]));
#if !HWY_ARCH_ARM_A64
  // There a NaN may have been replaced by a number.
  auto numbers = hn::Eq(x[0], x[0]);
  for (size_t i = 1; i < kCount; ++i) numbers = hn::And(numbers, hn::Eq(x[i], x[i]));
  if (!hn::AllTrue(d, numbers)) return false;
#endif
  return hn::AllTrue(d, hn::Lt(largest, hn::Set(d, kExpNormal<hn::TFromD<D>>)));
}

// Several vectors at once; each element's result is that of exp.
template <class D, class V, size_t kCount>
HWY_INLINE void exp(D d, V (&x)[kCount]) {
  if (!(MICA_SIMD_AVX512 && DoubleLanes<D>)&&have_normal_exp(d, x)) {
    exp_of_normal(d, x);
  } else {
    for (V& v : x) v = exp(d, v);
  }
}

// exp for x <= 0 (or NaN), one operation shorter.
template <class D, class V>
HWY_INLINE V exp_nonpositive(D d, V x) {
  return exp_in_range(d, at_least(d, x, kExpUnderflow<hn::TFromD<D>>));
}

template <class D, class V>
HWY_INLINE V exp2(D d, V x) {
  using T = hn::TFromD<D>;
  x = at_least(d, at_most(d, x, sizeof(T) == 4 ? T(129) : T(1025)), sizeof(T) == 4 ? T(-151) : T(-1076));
  const V n = nearest_multiple(d, x, T(1));
  const V r = hn::Sub(x, n);
  return scale_by_pow2(d, hn::MulAdd(polynomial(d, r, Polynomials<T>::kExp2), r, hn::Set(d, T(1))), n);
}

// expm1(x - n log(2)) = leading + tail, for |x - n log(2)| up to about log(2) / 2.
template <class V>
struct Expm1Parts {
  V leading, tail;
};

template <class D, class V>
HWY_INLINE Expm1Parts<V> expm1_of_remainder(D d, V x, V n) {
  using T = hn::TFromD<D>;
  using P = Polynomials<T>;
  const V coarse = hn::NegMulAdd(n, hn::Set(d, P::kLn2Hi), x);  // exact
  const V r = hn::NegMulAdd(n, hn::Set(d, P::kLn2Lo), coarse);
  const V r_error = hn::NegMulAdd(n, hn::Set(d, P::kLn2Lo), hn::Sub(coarse, r));
  const V quadratic = hn::MulAdd(short_chains(d, r, P::kExpm1), r, hn::Set(d, T(0.5)));
  return {r, hn::MulAdd(quadratic, hn::Mul(r, r), hn::MulAdd(r, r_error, r_error))};
}

// exp(x) - 1 = 2^n ((1 - 2^-n) + expm1(r)), the bracket kept as a pair so that neither the cancellation at n = 0
// nor the rounding of the sum costs accuracy.
template <class D, class V>
HWY_INLINE ScaledPair<V> expm1_scaled(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  // Below these bounds the result is -1 to the last bit.
  x = at_least(d, at_most(d, x, kExpOverflow<T>), sizeof(T) == 4 ? T(-20) : T(-42));
  const V n = nearest_multiple(d, x, Polynomials<T>::kLog2E);
  const Expm1Parts<V> e = expm1_of_remainder(d, x, n);
  const V power = scale_by_pow2(d, one, hn::Neg(n));
  const Pair<V> base = two_sum(one, hn::Neg(power));
  const Pair<V> sum = two_sum(base.hi, e.leading);
  return {{sum.hi, hn::Add(hn::Add(sum.lo, base.lo), e.tail)}, n};
}

// exp(x + correction) = 2^n (hi + lo), under the conditions of exp_in_range.
template <class D, class V>
HWY_INLINE ScaledPair<V> exp_scaled(D d, V x, V correction) {
  using T = hn::TFromD<D>;
  const V n = nearest_multiple(d, x, Polynomials<T>::kLog2E);
  const Expm1Parts<V> e = expm1_of_remainder(d, x, n);
  const Pair<V> sum = fast_two_sum(hn::Set(d, T(1)), e.leading);
  const V moved = hn::MulAdd(correction, hn::Add(sum.hi, e.tail), e.tail);
  return {{sum.hi, hn::Add(sum.lo, moved)}, n};
}

template <class D, class V>
HWY_INLINE V expm1(D d, V x) {
  const ScaledPair<V> y = expm1_scaled(d, x);
  const V result = scale_by_pow2(d, hn::Add(y.value.hi, y.value.lo), y.exponent);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, result);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_EXP_INL_H_
