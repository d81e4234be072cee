// Error functions, gamma functions, logit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/special.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <optional>

#include "backends//cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/simd/gaussian-inl.h"
#include "backends/cpu/simd/hyperbolic-inl.h"
#include "backends/cpu/simd/special-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

#define MICA_SPECIAL(slot, torch_name, grain, ...) \
  MICA_LANES_1(slot##_lanes, __VA_ARGS__)          \
  void slot##_kernel(const PointwiseLoop& loop) { run_floating<1>(torch_name, loop, slot##_lanes{}, grain); }
MICA_SPECIAL(erf, "erf_vml_cpu", kHeavyGrain, erf(d, x))
MICA_SPECIAL(erfc, "erfc_vml_cpu", kHeavyGrain, erfc(d, x))
MICA_SPECIAL(erfinv, "erfinv_vml_cpu", kSlowGrain, erfinv(d, x))
MICA_SPECIAL(lgamma, "lgamma_vml_cpu", kSlowGrain, lgamma(d, x))
MICA_SPECIAL(digamma, "digamma", kSlowGrain, digamma(d, x))
#undef MICA_SPECIAL

struct PolygammaLanes {
  int n;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return polygamma(d, n, x);
  }
};
void polygamma_kernel(const PointwiseLoop& loop, int64_t n) {
  run_floating<1>("polygamma", loop, PolygammaLanes{static_cast<int>(n)}, kSlowGrain);
}

MICA_LANES_1(LogitLanes, logit(d, x))
struct ClampedLogitLanes {
  double eps;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    const V low = hn::Set(d, static_cast<T>(eps)), high = hn::Set(d, static_cast<T>(T(1) - static_cast<T>(eps)));
    x = hn::IfThenElse(hn::Lt(x, low), low, x);
    return logit(d, hn::IfThenElse(hn::Gt(x, high), high, x));
  }
};
void logit_kernel(const PointwiseLoop& loop, std::optional<double> eps) {
  if (eps && *eps >= 0) return run_floating<1>("logit_cpu", loop, ClampedLogitLanes{*eps}, kHeavyGrain);
  run_floating<1>("logit_cpu", loop, LogitLanes{}, kHeavyGrain);
}

// grad / (x (1 - x)) between the bounds, `outside` beyond them.
struct LogitBackwardLanes {
  double low, high, outside;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V grad, V x) const {
    using T = hn::TFromD<D>;
    const V slope = hn::Div(grad, hn::Mul(x, hn::Sub(hn::Set(d, T(1)), x)));
    const auto inside =
        hn::And(hn::Ge(x, hn::Set(d, static_cast<T>(low))), hn::Le(x, hn::Set(d, static_cast<T>(high))));
    return hn::IfThenElse(inside, slope, hn::Set(d, static_cast<T>(outside)));
  }
};
void logit_backward_kernel(const PointwiseLoop& loop, std::optional<double> eps) {
  const bool clamped = eps && *eps >= 0;
  const LogitBackwardLanes f = clamped ? LogitBackwardLanes{*eps, 1 - *eps, 0} : LogitBackwardLanes{0, 1, NAN};
  run_floating<2>("logit_backward_cpu", loop, f, kMemoryGrain);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(erf)
MICA_POINTWISE_SLOT(erfc)
MICA_POINTWISE_SLOT(erfinv)
MICA_POINTWISE_SLOT(lgamma)
MICA_POINTWISE_SLOT(digamma)
MICA_POINTWISE_SLOT(polygamma)
MICA_POINTWISE_SLOT(logit)
MICA_POINTWISE_SLOT(logit_backward)
}  // namespace mica::cpu
#endif
