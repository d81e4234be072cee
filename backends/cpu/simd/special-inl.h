// The special functions of backends/shared/special_math.h, lane by lane.

#if defined(MICA_CPU_SIMD_SPECIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_SPECIAL_INL_H_
#undef MICA_CPU_SIMD_SPECIAL_INL_H_
#else
#define MICA_CPU_SIMD_SPECIAL_INL_H_
#endif

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/shared/special_math.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#define MICA_SIMD_PER_LANE(NAME)                                         \
  template <class D, class V>                                            \
  HWY_INLINE V NAME(D d, V x) {                                          \
    using T = hn::TFromD<D>;                                             \
    return per_lane(d, x, [](T v) { return ::mica::special::NAME(v); }); \
  }

MICA_SIMD_PER_LANE(lgamma)
MICA_SIMD_PER_LANE(digamma)
MICA_SIMD_PER_LANE(trigamma)
MICA_SIMD_PER_LANE(erfinv)
MICA_SIMD_PER_LANE(i0)
MICA_SIMD_PER_LANE(i0e)
MICA_SIMD_PER_LANE(i1)
MICA_SIMD_PER_LANE(i1e)
#undef MICA_SIMD_PER_LANE

template <class D, class V>
HWY_INLINE V polygamma(D d, int n, V x) {
  using T = hn::TFromD<D>;
  return per_lane(d, x, [n](T v) { return ::mica::special::polygamma(n, v); });
}

template <class D, class V>
HWY_INLINE V zeta(D d, V x, V q) {
  using T = hn::TFromD<D>;
  return per_lane(d, x, q, [](T u, T v) { return ::mica::special::zeta(u, v); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_SPECIAL_INL_H_
