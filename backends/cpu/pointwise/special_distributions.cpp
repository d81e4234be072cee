// Bessel functions, the normal distribution, incomplete gamma functions, zeta.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/special_distributions.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/simd/bessel-inl.h"
#include "backends/cpu/simd/normal-inl.h"
#include "backends/cpu/simd/zeta-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "backends/shared/special_math.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

#define MICA_SPECIAL_1(slot, torch_name, function)                                        \
  void slot##_kernel(const PointwiseLoop& loop) {                                         \
    visit_floating(torch_name, loop.dtype, [&]<class T>(Tag<T>) {                         \
      run_unary<T>(                                                                       \
          loop, [](compute_t<T> x) { return ::mica::special::function(x); }, kSlowGrain); \
    });                                                                                   \
  }
#define MICA_SPECIAL_2(slot, torch_name, function)                                                           \
  void slot##_kernel(const PointwiseLoop& loop) {                                                            \
    visit_floating(torch_name, loop.dtype, [&]<class T>(Tag<T>) {                                            \
      run_binary<T>(                                                                                         \
          loop, [](compute_t<T> x, compute_t<T> y) { return ::mica::special::function(x, y); }, kSlowGrain); \
    });                                                                                                      \
  }
MICA_SPECIAL_1(special_ndtri, "ndtri_cpu", ndtri)
MICA_SPECIAL_2(igamma, "igamma_cpu", igamma)
MICA_SPECIAL_2(igammac, "igammac_cpu", igammac)
#undef MICA_SPECIAL_1
#undef MICA_SPECIAL_2

#define MICA_SPECIAL_LANES(inputs, slot, torch_name, ...)                                        \
  MICA_LANES_##inputs(slot##_lanes, __VA_ARGS__) void slot##_kernel(const PointwiseLoop& loop) { \
    run_floating<inputs>(torch_name, loop, slot##_lanes{}, kHeavyGrain);                         \
  }
MICA_SPECIAL_LANES(1, i0, "i0_cpu", bessel_i<0>(d, x))
MICA_SPECIAL_LANES(1, special_i0e, "i0e_cpu", scaled_bessel_i<0>(d, x))
MICA_SPECIAL_LANES(1, special_i1, "i1_cpu", bessel_i<1>(d, x))
MICA_SPECIAL_LANES(1, special_i1e, "i1e_cpu", scaled_bessel_i<1>(d, x))
MICA_SPECIAL_LANES(1, special_ndtr, "ndtr_cpu", ndtr(d, x))
MICA_SPECIAL_LANES(1, special_log_ndtr, "log_ndtr_cpu", log_ndtr(d, x))
MICA_SPECIAL_LANES(1, special_erfcx, "erfcx_cpu", erfcx(d, x))
MICA_SPECIAL_LANES(1, special_entr, "entr_cpu", entr(d, x))
MICA_SPECIAL_LANES(2, special_xlog1py, "xlog1py_cpu", xlog1py(d, x, y))
MICA_SPECIAL_LANES(2, special_zeta, "zeta_cpu", zeta_lanes(d, x, y))
#undef MICA_SPECIAL_LANES

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(i0)
MICA_POINTWISE_SLOT(special_i0e)
MICA_POINTWISE_SLOT(special_i1)
MICA_POINTWISE_SLOT(special_i1e)
MICA_POINTWISE_SLOT(special_ndtr)
MICA_POINTWISE_SLOT(special_ndtri)
MICA_POINTWISE_SLOT(special_log_ndtr)
MICA_POINTWISE_SLOT(special_erfcx)
MICA_POINTWISE_SLOT(special_entr)
MICA_POINTWISE_SLOT(special_xlog1py)
MICA_POINTWISE_SLOT(special_zeta)
MICA_POINTWISE_SLOT(igamma)
MICA_POINTWISE_SLOT(igammac)
}  // namespace mica::cpu
#endif
