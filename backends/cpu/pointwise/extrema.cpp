// The larger and the smaller, bounds, relu.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/extrema.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// NaN on either side is the result; NEON's instructions give it by themselves.
template <class V>
HWY_INLINE V larger(V x, V y) {
  return HWY_ARCH_ARM_A64 ? larger_or_nan(x, y) : hn::IfThenElse(hn::IsNaN(x), x, larger_or_nan(x, y));
}
template <class V>
HWY_INLINE V smaller(V x, V y) {
  return HWY_ARCH_ARM_A64 ? smaller_or_nan(x, y) : hn::IfThenElse(hn::IsNaN(x), x, smaller_or_nan(x, y));
}
MICA_LANES_2(MaximumLanes, larger(x, y))
MICA_LANES_2(MinimumLanes, smaller(x, y))
MICA_LANES_2(FmaxLanes, hn::IfThenElse(hn::IsNaN(y), x, larger(y, hn::IfThenElse(hn::IsNaN(x), y, x))))
MICA_LANES_2(FminLanes, hn::IfThenElse(hn::IsNaN(y), x, smaller(y, hn::IfThenElse(hn::IsNaN(x), y, x))))
MICA_LANES_1(ReluLanes, larger_or_nan(hn::Zero(d), x))
struct ClampLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D, V x, V low, V high) const {
    return smaller(larger(x, low), high);
  }
};
struct HardtanhLanes {
  double low, high;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    return smaller_or_nan(hn::Set(d, static_cast<T>(high)), larger_or_nan(hn::Set(d, static_cast<T>(low)), x));
  }
};

template <class T>
struct Larger {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct Smaller {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct Clamp {
  T operator()(T a, T low, T high) const {
    const T raised = a < low ? low : a;
    return high < raised ? high : raised;
  }
};
template <class T>
struct Relu {
  T operator()(T a) const { return a < 0 ? T(0) : a; }
};
template <class T>
struct Hardtanh {
  T low, high;
  T operator()(T a) const { return a < low ? low : high < a ? high : a; }
};

template <class Lanes, template <class> class Others>
void extremum(const char* name, const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) return run_floating<2>(name, loop, Lanes{}, kMemoryGrain);
  visit_integral_bool(name, loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Others<T>{}); });
}
void maximum_kernel(const PointwiseLoop& loop) { extremum<MaximumLanes, Larger>("maximum_cpu", loop); }
void minimum_kernel(const PointwiseLoop& loop) { extremum<MinimumLanes, Smaller>("minimum_cpu", loop); }
void fmax_kernel(const PointwiseLoop& loop) { extremum<FmaxLanes, Larger>("maximum_cpu", loop); }
void fmin_kernel(const PointwiseLoop& loop) { extremum<FminLanes, Smaller>("minimum_cpu", loop); }
void clamp_min_kernel(const PointwiseLoop& loop) { maximum_kernel(loop); }
void clamp_max_kernel(const PointwiseLoop& loop) { minimum_kernel(loop); }

void clamp_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) return run_floating<3>("clamp_cpu", loop, ClampLanes{}, kMemoryGrain);
  visit_integral("clamp_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_ternary<T>(loop, Clamp<T>{}); });
}
void relu_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) return run_floating<1>("clamp_min_scalar_cpu", loop, ReluLanes{}, kMemoryGrain);
  visit_integral("clamp_min_scalar_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_unary<T>(loop, Relu<T>{}); });
}
void hardtanh_kernel(const PointwiseLoop& loop, Scalar min_val, Scalar max_val) {
  if (is_floating(loop.dtype))
    return run_floating<1>("clamp_scalar_cpu", loop, HardtanhLanes{min_val.to_double(), max_val.to_double()},
                           kMemoryGrain);
  visit_integral("clamp_scalar_cpu", loop.dtype, [&]<class T>(Tag<T>) {
    run_unary<T>(loop, Hardtanh<T>{min_val.to<T>(), max_val.to<T>()});
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(maximum)
MICA_POINTWISE_SLOT(minimum)
MICA_POINTWISE_SLOT(fmax)
MICA_POINTWISE_SLOT(fmin)
MICA_POINTWISE_SLOT(clamp_min)
MICA_POINTWISE_SLOT(clamp_max)
MICA_POINTWISE_SLOT(clamp)
MICA_POINTWISE_SLOT(relu)
MICA_POINTWISE_SLOT(hardtanh)
}  // namespace mica::cpu
#endif
