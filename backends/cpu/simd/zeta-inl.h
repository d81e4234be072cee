// Hurwitz's zeta function: the sum of backends/shared/special_math.h, all lanes at once.

#if defined(MICA_CPU_SIMD_ZETA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_ZETA_INL_H_
#undef MICA_CPU_SIMD_ZETA_INL_H_
#else
#define MICA_CPU_SIMD_ZETA_INL_H_
#endif

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/pow-inl.h"
#include "backends/shared/special_math.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kTerms direct terms and kWeights of the tail, powers by `pow`.
template <int kTerms, int kWeights, class D, class V, class Pow>
HWY_INLINE V zeta_sum(D d, V x, V q, const Pow& pow) {
  const V one = hn::Set(d, 1.0), minus_x = hn::Neg(x);
  V sum = hn::Zero(d), a = q;
  for (int k = 0; k < kTerms; ++k) {
    sum = hn::Add(sum, pow(d, a, minus_x));
    a = hn::Add(a, one);
  }
  const V power = pow(d, a, minus_x);
  sum = hn::Add(sum, hn::MulAdd(power, hn::Div(a, hn::Sub(x, one)), hn::Mul(power, hn::Set(d, 0.5))));
  const V inverse = hn::Div(one, a), inverse_square = hn::Mul(inverse, inverse);
  V factor = hn::Mul(hn::Mul(power, inverse), x);  // x (x + 1) ... (x + 2k - 2) a^(-x - 2k + 1)
  for (int k = 0; k < kWeights; ++k) {
    sum = hn::MulAdd(hn::Set(d, ::mica::special::zeta_weight(k)), factor, sum);
    const V next = hn::Add(x, hn::Set(d, 2.0 * k + 1.0));
    factor = hn::Mul(hn::Mul(factor, inverse_square), hn::Mul(next, hn::Add(next, one)));
  }
  return sum;
}

template <class D, class V>
HWY_INLINE bool all_within(D d, V x, double low, double high) {
  return hn::AllTrue(d, hn::And(hn::Gt(x, hn::Set(d, low)), hn::Lt(x, hn::Set(d, high))));
}

// A vector with a lane that has a pole, a limit or an exponent beyond the plain case is left to the scalar function.
template <class D, class V>
HWY_INLINE V zeta_of_doubles(D d, V x, V q) {
  if (HWY_UNLIKELY(!all_within(d, x, 1.0, 1000.0) || !all_within(d, q, 1e-6, 1e6)))
    return per_lane(d, x, q, [](double u, double v) { return ::mica::special::zeta(u, v); });
  return zeta_sum<10, 10>(d, x, q, [](auto dd, auto a, auto y) HWY_ATTR { return pow_magnitude(dd, a, y); });
}

// Floats are computed as doubles; the shorter sum is exact enough for a float, and no power leaves the range of the
// quicker pow.
template <class D, class V>
HWY_INLINE V zeta_lanes(D d, V x, V q) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return through_double(d, x, q, [](auto dd, auto a, auto b) HWY_ATTR {
      if (HWY_UNLIKELY(!all_within(dd, a, 1.0, 30.0) || !all_within(dd, b, 0.02, 60.0)))
        return zeta_of_doubles(dd, a, b);
      return zeta_sum<8, 6>(dd, a, b, [](auto e, auto u, auto y) HWY_ATTR { return pow_magnitude_for_float(e, u, y); });
    });
  } else {
    return zeta_of_doubles(d, x, q);
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_ZETA_INL_H_
