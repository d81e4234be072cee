// Activation functions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <string_view>

#include "backends/cpu/pointwise/complex_math.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/simd/activation-inl.h"
#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/gaussian-inl.h"
#include "core/silu_of_line.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class D, class V>
HWY_INLINE V between(D d, V x, double low, double high) {
  return smaller_or_nan(lanes_of(d, high), larger_or_nan(lanes_of(d, low), x));
}

struct SiluLanes {
  static constexpr size_t kGroup = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 4 : 2;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return silu(d, x);
  }
  template <class D, class V>
  HWY_INLINE void group(D d, V (&x)[kGroup]) const {
    silu(d, x);
  }
};
// Of shift + scale * x, as addcmul computes it.
struct SiluOfLineLanes : SiluLanes {
  template <class D, class V>
  static HWY_INLINE V join(D, V shift, V scale, V x) {
    return hn::MulAdd(scale, x, shift);
  }
  template <class D, class V>
  HWY_INLINE V operator()(D d, V shift, V scale, V x) const {
    return silu(d, join(d, shift, scale, x));
  }
};
struct GeluLanes {
  // As many vectors as fit the registers.
  static constexpr size_t kGroup = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 4 : 2;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return gelu(d, x);
  }
  template <class D, class V>
  HWY_INLINE void group(D d, V (&x)[kGroup]) const {
    gelu(d, x);
  }
};
MICA_LANES_1(GeluTanhLanes, gelu_tanh(d, x))
MICA_LANES_1(MishLanes, mish(d, x))
MICA_LANES_1(LogSigmoidLanes, log_sigmoid(d, x))
MICA_LANES_1(HardsigmoidLanes, hn::Mul(between(d, hn::Add(x, lanes_of(d, 3)), 0, 6), lanes_of(d, 1.0 / 6)))
MICA_LANES_1(HardswishLanes, hn::Mul(hn::Mul(x, between(d, hn::Add(x, lanes_of(d, 3)), 0, 6)), lanes_of(d, 1.0 / 6)))
MICA_LANES_2(PreluLanes, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(y, x)))

struct SoftplusLanes {
  double beta;
  double threshold;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V x) const {
    return softplus(d, x, lanes_of(d, beta), lanes_of(d, threshold));
  }
};
struct EluLanes {
  double negative_scale;
  double positive_scale;
  double input_scale;
  static constexpr size_t kGroup = HWY_ARCH_ARM_A64 ? 4 : 2;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V x) const {
    const V negative = hn::Mul(expm1(d, hn::Mul(x, lanes_of(d, input_scale))), lanes_of(d, negative_scale));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Mul(x, lanes_of(d, positive_scale)), negative);
  }
  // Where all are positive, there is no exponential to take.
  template <class D, class V>
  HWY_INLINE void group(D d, V (&x)[kGroup]) const {
    auto positive = hn::Gt(x[0], hn::Zero(d));
    for (size_t i = 1; i < kGroup; ++i) positive = hn::And(positive, hn::Gt(x[i], hn::Zero(d)));
    if (hn::AllTrue(d, positive)) {
      for (V& v : x) v = hn::Mul(v, lanes_of(d, positive_scale));
    } else {
      for (V& v : x) v = (*this)(d, v);
    }
  }
};
struct LeakyReluLanes {
  double slope;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V x) const {
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, lanes_of(d, slope)));
  }
};
struct HardshrinkLanes {
  double bound;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V x) const {
    return hn::IfThenElse(hn::Le(hn::Abs(x), lanes_of(d, bound)), hn::Zero(d), x);
  }
};
struct SoftshrinkLanes {
  double bound;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V x) const {
    // A NaN is in no interval, and comes through the product.
    const V l = lanes_of(d, bound);
    const V inside = hn::Mul(x, hn::Zero(d));
    const V below = hn::IfThenElse(hn::Lt(x, hn::Neg(l)), hn::Add(x, l), inside);
    return hn::IfThenElse(hn::Gt(x, l), hn::Sub(x, l), below);
  }
};

void silu_kernel(const PointwiseLoop& loop) {
  if (is_complex(loop.dtype)) return complex_silu("silu_cpu", loop);
  run_floating<1>("silu_cpu", loop, SiluLanes{}, kHeavyGrain);
}
void silu_of_line_kernel(const PointwiseLoop& loop) { run_lanes<float, 3>(loop, SiluOfLineLanes{}, kHeavyGrain); }
void gelu_kernel(const PointwiseLoop& loop, std::string_view approximate) {
  if (approximate == "tanh") return run_floating<1>("GeluKernelImpl", loop, GeluTanhLanes{}, kHeavyGrain);
  run_floating<1>("GeluKernelImpl", loop, GeluLanes{}, kHeavyGrain);
}
void mish_kernel(const PointwiseLoop& loop) { run_floating<1>("mish_cpu", loop, MishLanes{}, kHeavyGrain); }
void log_sigmoid_kernel(const PointwiseLoop& loop) {
  run_floating<1>("log_sigmoid_cpu", loop, LogSigmoidLanes{}, kHeavyGrain);
}
void softplus_kernel(const PointwiseLoop& loop, Scalar beta, Scalar threshold) {
  run_floating<1>("softplus_cpu", loop, SoftplusLanes{beta.to_double(), threshold.to_double()}, kHeavyGrain);
}
void elu_kernel(const PointwiseLoop& loop, Scalar alpha, Scalar scale, Scalar input_scale) {
  run_floating<1>("elu_cpu", loop,
                  EluLanes{alpha.to_double() * scale.to_double(), scale.to_double(), input_scale.to_double()},
                  kHeavyGrain);
}
void hardsigmoid_kernel(const PointwiseLoop& loop) {
  run_floating<1>("hardsigmoid_cpu", loop, HardsigmoidLanes{}, kMemoryGrain);
}
void hardswish_kernel(const PointwiseLoop& loop) {
  run_floating<1>("hardswish_cpu", loop, HardswishLanes{}, kMemoryGrain);
}
void leaky_relu_kernel(const PointwiseLoop& loop, Scalar negative_slope) {
  run_floating<1>("leaky_relu_cpu", loop, LeakyReluLanes{negative_slope.to_double()}, kMemoryGrain);
}
void prelu_kernel(const PointwiseLoop& loop) { run_floating<2>("prelu_cpu", loop, PreluLanes{}, kMemoryGrain); }
void hardshrink_kernel(const PointwiseLoop& loop, Scalar lambd) {
  run_floating<1>("hardshrink_cpu", loop, HardshrinkLanes{lambd.to_double()}, kMemoryGrain);
}
void softshrink_kernel(const PointwiseLoop& loop, Scalar lambd) {
  run_floating<1>("softshrink_cpu", loop, SoftshrinkLanes{lambd.to_double()}, kMemoryGrain);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(silu)
HWY_EXPORT(silu_of_line_kernel);
static void silu_of_line(const PointwiseLoop& loop) { HWY_DYNAMIC_DISPATCH(silu_of_line_kernel)(loop); }
MICA_POINTWISE_SLOT(gelu)
MICA_POINTWISE_SLOT(mish)
MICA_POINTWISE_SLOT(log_sigmoid)
MICA_POINTWISE_SLOT(softplus)
MICA_POINTWISE_SLOT(elu)
MICA_POINTWISE_SLOT(hardsigmoid)
MICA_POINTWISE_SLOT(hardswish)
MICA_POINTWISE_SLOT(leaky_relu)
MICA_POINTWISE_SLOT(prelu)
MICA_POINTWISE_SLOT(hardshrink)
MICA_POINTWISE_SLOT(softshrink)
}  // namespace mica::cpu

void mica::recording::silu_of_line(const PointwiseLoop& loop) { cpu::silu_of_line(loop); }
#endif
