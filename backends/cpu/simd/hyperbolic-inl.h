// sinh, cosh and the inverse hyperbolic functions (tanh is with the activations).

#if defined(MICA_CPU_SIMD_HYPERBOLIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_HYPERBOLIC_INL_H_
#undef MICA_CPU_SIMD_HYPERBOLIC_INL_H_
#else
#define MICA_CPU_SIMD_HYPERBOLIC_INL_H_
#endif

#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(t) / 2 as a pair, for t >= 0, reaching infinity only where sinh and cosh do.
template <class D, class V>
HWY_INLINE Pair<V> half_exp(D d, V t) {
  using T = hn::TFromD<D>;
  const ScaledPair<V> e = exp_scaled(d, at_most(d, t, sizeof(T) == 4 ? T(90) : T(711)), hn::Zero(d));
  const V exponent = hn::Sub(e.exponent, hn::Set(d, T(1)));
  const Pair<V> value = fast_two_sum(e.value.hi, e.value.lo);
  return {scale_by_pow2(d, value.hi, exponent), scale_by_pow2(d, value.lo, exponent)};
}

// exp(-t) / 2 = 1/4 / half_exp(t); far from zero it no longer matters.
template <class D, class V>
HWY_INLINE V half_exp_of_minus(D d, V half_exp_hi) {
  using T = hn::TFromD<D>;
  return quotient(d, hn::Set(d, T(0.25)), at_most(d, half_exp_hi, T(0x1p60)));
}

template <class D, class V>
HWY_INLINE V cosh(D d, V x) {
  const Pair<V> growing = half_exp(d, hn::Abs(x));
  const Pair<V> sum = fast_two_sum(growing.hi, half_exp_of_minus(d, growing.hi));
  const V result = hn::Add(sum.hi, hn::Add(sum.lo, growing.lo));
  return hn::IfThenElse(hn::Lt(growing.hi, infinity(d)), result, growing.hi);
}

template <class D, class V>
HWY_INLINE V sinh(D d, V x) {
  using T = hn::TFromD<D>;
  const V magnitude = hn::Abs(x);
  const V u = hn::Mul(x, x);
  const V inner = hn::MulAdd(hn::Mul(magnitude, u), polynomial(d, u, Polynomials<T>::kSinh), magnitude);
  const Pair<V> growing = half_exp(d, magnitude);
  const Pair<V> sum = fast_two_sum(growing.hi, hn::Neg(half_exp_of_minus(d, growing.hi)));
  const V finite = hn::Add(sum.hi, hn::Add(sum.lo, growing.lo));
  const V outer = hn::IfThenElse(hn::Lt(growing.hi, infinity(d)), finite, growing.hi);
  return hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, T(1))), inner, outer), x);
}

// sqrt(hi + lo) as a pair, for hi > 0.
template <class D, class V>
HWY_INLINE Pair<V> sqrt_of_pair(D d, V hi, V lo) {
  using T = hn::TFromD<D>;
  const V root = hn::Sqrt(hi);
  const V remainder = hn::Add(hn::NegMulAdd(root, root, hi), lo);
  const V correction = hn::Div(hn::Mul(remainder, hn::Set(d, T(0.5))), root);
  return {root, hn::IfThenElseZero(hn::Gt(root, hn::Zero(d)), correction)};
}

// n / v as a pair.
template <class D, class V>
HWY_INLINE Pair<V> divide_pairs(D d, Pair<V> n, Pair<V> v) {
  const V r = hn::Div(hn::Set(d, hn::TFromD<D>(1)), v.hi);
  const V q = hn::Mul(n.hi, r);
  return {q, hn::Mul(hn::Add(hn::NegMulAdd(v.hi, q, n.hi), hn::NegMulAdd(v.lo, q, n.lo)), r)};
}

// From here on asinh and acosh are log(2 x) to the last bit, and squares may overflow.
template <class T>
inline constexpr T kInverseHyperbolicFar = sizeof(T) == 4 ? T(0x1p13) : T(0x1p28);

// log(1 + hi + lo), or log(2 x) where x is far out.
template <class D, class V>
HWY_INLINE V log1p_or_log_twice(D d, V x, Pair<V> t) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  const auto far = hn::Gt(x, hn::Set(d, kInverseHyperbolicFar<T>));
  const Pair<V> sum = two_sum(one, t.hi);
  const V lo = hn::IfThenZeroElse(far, hn::Add(sum.lo, t.lo));
  return log_of_sum(d, hn::IfThenElse(far, x, sum.hi), lo, hn::IfThenElseZero(far, one));
}

// Below this x itself is asinh(x) and atanh(x) to within an eighth of an ulp or so.
template <class T>
inline constexpr T kInverseHyperbolicNear = sizeof(T) == 4 ? T(0x1p-13) : T(0x1p-27);

// With a = |x|: log(1 + a + a^2 / (1 + sqrt(1 + a^2))), every step a pair.
template <class D, class V>
HWY_INLINE V asinh(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V a = hn::Abs(x);
  const Pair<V> square = two_product(a, a);
  const Pair<V> under = two_sum(one, square.hi);
  const Pair<V> root = sqrt_of_pair(d, under.hi, hn::Add(under.lo, square.lo));
  Pair<V> denominator = fast_two_sum(root.hi, one);
  denominator.lo = hn::Add(denominator.lo, root.lo);
  const Pair<V> ratio = divide_pairs(d, square, denominator);
  Pair<V> t = two_sum(a, ratio.hi);
  t.lo = hn::Add(t.lo, ratio.lo);
  const auto near = hn::Lt(a, hn::Set(d, kInverseHyperbolicNear<hn::TFromD<D>>));
  return hn::CopySign(hn::IfThenElse(near, a, log1p_or_log_twice(d, a, t)), x);
}

// With m = x - 1: log(1 + m + sqrt(m (m + 2))).
template <class D, class V>
HWY_INLINE V acosh(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V m = hn::Sub(x, one);
  const Pair<V> above = two_sum(x, one);
  Pair<V> product = two_product(m, above.hi);
  product.lo = hn::MulAdd(m, above.lo, product.lo);
  const Pair<V> root = sqrt_of_pair(d, product.hi, product.lo);
  Pair<V> t = two_sum(root.hi, m);
  t.lo = hn::Add(t.lo, root.lo);
  return hn::IfThenElse(hn::Lt(x, one), quiet_nan(d), log1p_or_log_twice(d, x, t));
}

// log(1 + 2a / (1 - a)) / 2 with a = |x|.
template <class D, class V>
HWY_INLINE V atanh(D d, V x) {
  using T = hn::TFromD<D>;
  const V a = hn::Abs(x);
  const Pair<V> ratio = divide_pairs(d, Pair<V>{hn::Add(a, a), hn::Zero(d)}, two_sum(hn::Set(d, T(1)), hn::Neg(a)));
  const V result = hn::Mul(log1p_of_sum(d, ratio.hi, ratio.lo), hn::Set(d, T(0.5)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, kInverseHyperbolicNear<T>)), a, result), x);
}

// log(x / (1 - x)).
template <class D, class V>
HWY_INLINE V logit(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const Pair<V> ratio = divide_pairs(d, Pair<V>{x, hn::Zero(d)}, two_sum(one, hn::Neg(x)));
  return log_of_sum(d, ratio.hi, ratio.lo, hn::Zero(d));
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_HYPERBOLIC_INL_H_
