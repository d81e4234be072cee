// Rounding to integers and decimals.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/rounding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdlib>

#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class T>
struct Same {
  T operator()(T a) const { return a; }
};

// Integers stay as they are.
template <class F>
void round_with(const char* name, const PointwiseLoop& loop, const F& f) {
  if (!is_integral(loop.dtype)) return run_floating<1>(name, loop, f, kMemoryGrain);
  visit_integral(name, loop.dtype, [&]<class T>(Tag<T>) { run_unary<T>(loop, Same<T>{}); });
}

MICA_LANES_1(CeilLanes, hn::Ceil(x))
MICA_LANES_1(FloorLanes, hn::Floor(x))
MICA_LANES_1(TruncLanes, hn::Trunc(x))
MICA_LANES_1(RoundLanes, hn::Round(x))
MICA_LANES_1(FracLanes, hn::Sub(x, hn::Trunc(x)))
void ceil_kernel(const PointwiseLoop& loop) { round_with("ceil_vml_cpu", loop, CeilLanes{}); }
void floor_kernel(const PointwiseLoop& loop) { round_with("floor_vml_cpu", loop, FloorLanes{}); }
void trunc_kernel(const PointwiseLoop& loop) { round_with("trunc_vml_cpu", loop, TruncLanes{}); }
void round_kernel(const PointwiseLoop& loop) { round_with("round_vml_cpu", loop, RoundLanes{}); }
void frac_kernel(const PointwiseLoop& loop) { run_floating<1>("frac_cpu", loop, FracLanes{}, kMemoryGrain); }

struct RoundDecimalsLanes {
  double power;  // a power of ten
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V p = hn::Set(d, static_cast<hn::TFromD<D>>(power));
    return hn::Div(hn::Round(hn::Mul(x, p)), p);
  }
};
struct RoundBeforePointLanes {
  double power;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V p = hn::Set(d, static_cast<hn::TFromD<D>>(power));
    return hn::Mul(hn::Round(hn::Div(x, p)), p);
  }
};
void round_decimals_kernel(const PointwiseLoop& loop, int64_t decimals) {
  if (decimals == 0) return round_kernel(loop);
  const double power = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  if (decimals > 0) return run_floating<1>("round_cpu", loop, RoundDecimalsLanes{power}, kMemoryGrain);
  run_floating<1>("round_cpu", loop, RoundBeforePointLanes{power}, kMemoryGrain);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(ceil)
MICA_POINTWISE_SLOT(floor)
MICA_POINTWISE_SLOT(trunc)
MICA_POINTWISE_SLOT(round)
MICA_POINTWISE_SLOT(frac)
MICA_POINTWISE_SLOT(round_decimals)
}  // namespace mica::cpu
#endif
