// Exponentials and logarithms.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/exponential.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/complex_math.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// A kernel for floating lanes, with the complex numbers in complex_math.cpp.
#define MICA_MATH(slot, torch_name, grain, ...)                          \
  MICA_LANES_1(slot##_lanes, __VA_ARGS__)                                \
  void slot##_kernel(const PointwiseLoop& loop) {                        \
    if (is_complex(loop.dtype)) return complex_##slot(torch_name, loop); \
    run_floating<1>(torch_name, loop, slot##_lanes{}, grain);            \
  }

MICA_LANES_GROUP(ExpLanes, exp)
void exp_kernel(const PointwiseLoop& loop) {
  if (is_complex(loop.dtype)) return complex_exp("exp_vml_cpu", loop);
  run_floating<1>("exp_vml_cpu", loop, ExpLanes{}, kMathGrain);
}
MICA_MATH(exp2, "exp2", kMathGrain, exp2(d, x))
MICA_MATH(expm1, "expm1_vml_cpu", kHeavyGrain, expm1(d, x))
MICA_MATH(log, "log_vml_cpu", kHeavyGrain, log(d, x))
MICA_MATH(log2, "log2_vml_cpu", kHeavyGrain, log2(d, x))
MICA_MATH(log10, "log10_vml_cpu", kHeavyGrain, log10(d, x))
MICA_MATH(log1p, "log1p_vml_cpu", kHeavyGrain, log1p(d, x))
#undef MICA_MATH

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(exp)
MICA_POINTWISE_SLOT(exp2)
MICA_POINTWISE_SLOT(expm1)
MICA_POINTWISE_SLOT(log)
MICA_POINTWISE_SLOT(log2)
MICA_POINTWISE_SLOT(log10)
MICA_POINTWISE_SLOT(log1p)
}  // namespace mica::cpu
#endif
