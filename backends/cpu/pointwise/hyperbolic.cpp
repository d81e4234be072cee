// Hyperbolic functions and their inverses, sigmoid, square roots.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/hyperbolic.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/complex_math.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/simd/activation-inl.h"
#include "backends/cpu/simd/arithmetic-inl.h"
#include "backends/cpu/simd/hyperbolic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// A kernel for floating lanes, with the complex numbers in complex_math.cpp.
#define MICA_MATH(slot, torch_name, grain, ...)                          \
  MICA_LANES_1(slot##_lanes, __VA_ARGS__)                                \
  void slot##_kernel(const PointwiseLoop& loop) {                        \
    if (is_complex(loop.dtype)) return complex_##slot(torch_name, loop); \
    run_floating<1>(torch_name, loop, slot##_lanes{}, grain);            \
  }

MICA_MATH(sinh, "sinh_vml_cpu", kHeavyGrain, sinh(d, x))
MICA_MATH(cosh, "cosh_vml_cpu", kHeavyGrain, cosh(d, x))
MICA_MATH(tanh, "tanh_vml_cpu", loop.dtype == DType::Float64 ? kHeavyGrain : kMathGrain, tanh(d, x))
MICA_MATH(asinh, "asinh_vml_cpu", kHeavyGrain, asinh(d, x))
MICA_MATH(acosh, "acosh_vml_cpu", kHeavyGrain, acosh(d, x))
MICA_MATH(atanh, "atanh_vml_cpu", kHeavyGrain, atanh(d, x))
MICA_LANES_GROUP(SigmoidLanes, sigmoid)
void sigmoid_kernel(const PointwiseLoop& loop) {
  if (is_complex(loop.dtype)) return complex_sigmoid("sigmoid_cpu", loop);
  run_floating<1>("sigmoid_cpu", loop, SigmoidLanes{}, kHeavyGrain);
}
struct SqrtLanes {
#if MICA_SIMD_AVX512
  static constexpr size_t kGroup = 3;
  template <class D, class V>
  HWY_INLINE void group(D d, V (&x)[kGroup]) const {
    sqrt(d, x);
  }
#endif
  template <class D, class V>
  HWY_INLINE V operator()(D, V x) const {
    return hn::Sqrt(x);
  }
};
void sqrt_kernel(const PointwiseLoop& loop) {
  if (is_complex(loop.dtype)) return complex_sqrt("sqrt_vml_cpu", loop);
  run_floating<1>("sqrt_vml_cpu", loop, SqrtLanes{}, kMemoryGrain);
}
MICA_MATH(rsqrt, "rsqrt_cpu", loop.dtype == DType::Float64 ? kMathGrain : kMemoryGrain, rsqrt(d, x))
#undef MICA_MATH

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(sinh)
MICA_POINTWISE_SLOT(cosh)
MICA_POINTWISE_SLOT(tanh)
MICA_POINTWISE_SLOT(asinh)
MICA_POINTWISE_SLOT(acosh)
MICA_POINTWISE_SLOT(atanh)
MICA_POINTWISE_SLOT(sigmoid)
MICA_POINTWISE_SLOT(sqrt)
MICA_POINTWISE_SLOT(rsqrt)
}  // namespace mica::cpu
#endif
