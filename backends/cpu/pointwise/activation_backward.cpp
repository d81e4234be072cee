// Derivatives of activation functions, as one pass over the gradient and what was saved; threshold, which relu shares.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/activation_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <complex>
#include <string_view>

#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_others.h"
#include "backends/cpu/simd/activation-inl.h"
#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/gaussian-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// ---- functions of the result

MICA_LANES_2(SigmoidBackwardLanes, hn::Mul(x, hn::Mul(hn::Sub(lanes_of(d, 1), y), y)))
MICA_LANES_2(TanhBackwardLanes, hn::Mul(x, hn::NegMulAdd(y, y, lanes_of(d, 1))))
template <class C>
struct SigmoidBackward {
  C operator()(C grad, C y) const { return product(grad, std::conj(product(C(1) - y, y))); }
};
template <class C>
struct TanhBackward {
  C operator()(C grad, C y) const { return product(grad, std::conj(C(1) - product(y, y))); }
};
void sigmoid_backward_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype))
    return run_floating<2>("sigmoid_backward_cpu", loop, SigmoidBackwardLanes{}, kMemoryGrain);
  visit_complex("sigmoid_backward_cpu", loop.dtype,
                [&]<class T>(Tag<T>) { run_binary<T>(loop, SigmoidBackward<T>{}); });
}
void tanh_backward_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) return run_floating<2>("tanh_backward_cpu", loop, TanhBackwardLanes{}, kMemoryGrain);
  visit_complex("tanh_backward_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, TanhBackward<T>{}); });
}

// ---- pieces of straight lines

struct ThresholdLanes {
  double bound;
  double value;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V x) const {
    return hn::IfThenElse(hn::Le(x, lanes_of(d, bound)), lanes_of(d, value), x);
  }
};
struct ThresholdBackwardLanes {
  double bound;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    return hn::IfThenElse(hn::Le(x, lanes_of(d, bound)), hn::Zero(d), grad);
  }
};

template <class T>
struct Threshold {
  T bound, value;
  T operator()(T a) const { return a <= bound ? value : a; }
};
template <class T>
struct ThresholdBackward {
  T bound;
  T operator()(T grad, T a) const { return a <= bound ? T(0) : grad; }
};
void threshold_kernel(const PointwiseLoop& loop, Scalar bound, Scalar value) {
  if (is_floating(loop.dtype))
    return run_floating<1>("threshold_cpu", loop, ThresholdLanes{bound.to_double(), value.to_double()}, kMemoryGrain);
  visit_integral("threshold_cpu", loop.dtype, [&]<class T>(Tag<T>) {
    run_unary<T>(loop, Threshold<T>{bound.to<T>(), value.to<T>()});
  });
}
void threshold_backward_kernel(const PointwiseLoop& loop, Scalar threshold) {
  if (is_floating(loop.dtype))
    return run_floating<2>("threshold_cpu", loop, ThresholdBackwardLanes{threshold.to_double()}, kMemoryGrain);
  visit_integral("threshold_cpu", loop.dtype,
                 [&]<class T>(Tag<T>) { run_binary<T>(loop, ThresholdBackward<T>{threshold.to<T>()}); });
}

struct LeakyReluBackwardLanes {
  double slope;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), grad, hn::Mul(grad, lanes_of(d, slope)));
  }
};
struct HardtanhBackwardLanes {
  double low;
  double high;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    const auto outside = hn::Or(hn::Le(x, lanes_of(d, low)), hn::Ge(x, lanes_of(d, high)));
    return hn::IfThenElse(outside, hn::Zero(d), grad);
  }
};
struct HardshrinkBackwardLanes {
  double bound;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    return hn::IfThenElse(hn::Le(hn::Abs(x), lanes_of(d, bound)), hn::Zero(d), grad);
  }
};
struct HardsigmoidBackwardLanes {
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    const auto inside = hn::Lt(hn::Abs(x), lanes_of(d, 3));
    return hn::IfThenElseZero(inside, hn::Mul(grad, lanes_of(d, 1.0 / 6)));
  }
};
struct HardswishBackwardLanes {
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    const V slope = hn::MulAdd(x, lanes_of(d, 1.0 / 3), lanes_of(d, 0.5));
    const V rising = hn::IfThenElse(hn::Lt(x, lanes_of(d, 3)), hn::Mul(grad, slope), grad);
    return hn::IfThenElse(hn::Le(x, lanes_of(d, -3)), hn::Zero(d), rising);
  }
};
void leaky_relu_backward_kernel(const PointwiseLoop& loop, Scalar negative_slope) {
  run_floating<2>("leaky_relu_backward_cpu", loop, LeakyReluBackwardLanes{negative_slope.to_double()}, kMemoryGrain);
}
void hardtanh_backward_kernel(const PointwiseLoop& loop, Scalar min_val, Scalar max_val) {
  run_floating<2>("hardtanh_backward_cpu", loop, HardtanhBackwardLanes{min_val.to_double(), max_val.to_double()},
                  kMemoryGrain);
}
void hardshrink_backward_kernel(const PointwiseLoop& loop, Scalar lambd) {
  run_floating<2>("shrink_backward_cpu", loop, HardshrinkBackwardLanes{lambd.to_double()}, kMemoryGrain);
}
void hardsigmoid_backward_kernel(const PointwiseLoop& loop) {
  run_floating<2>("hardsigmoid_backward", loop, HardsigmoidBackwardLanes{}, kMemoryGrain);
}
void hardswish_backward_kernel(const PointwiseLoop& loop) {
  run_floating<2>("hardswish_backward_cpu", loop, HardswishBackwardLanes{}, kMemoryGrain);
}

// ---- exponentials

struct SiluBackwardLanes {
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    const V one = lanes_of(d, 1);
    const V s = sigmoid(d, x);
    return hn::Mul(grad, hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one)));
  }
};
struct GeluBackwardLanes {
  template <class D, class V>
  HWY_INLINE static V slope([[maybe_unused]] D d, V x) {
    const V half = lanes_of(d, 0.5);
    const V cumulative = hn::MulAdd(erf(d, hn::Mul(x, lanes_of(d, 0.70710678118654752440))), half, half);
    const V density = hn::Mul(exp(d, hn::Mul(hn::Mul(x, x), lanes_of(d, -0.5))), lanes_of(d, 0.39894228040143267794));
    return hn::MulAdd(x, density, cumulative);
  }
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    return hn::Mul(grad, slope(d, x));
  }
};

#if HWY_ARCH_ARM_A64
// Several vectors of floats go through each step together. Within the range of the short tail, the cumulative
// distribution of a negative x is that tail itself. Elements beyond it go through GeluBackwardLanes. An element's
// result does not depend on its neighbours.
template <class D, class V, size_t kCount>
HWY_INLINE void gelu_slopes(D d, const V (&x)[kCount], V (&slope)[kCount]) {
  V t[kCount], tail[kCount], density[kCount], largest = hn::Zero(d);
  for (size_t k = 0; k < kCount; ++k) {
    largest = larger_or_nan(largest, distance_to_short_tail(d, x[k]));
    t[k] = hn::Abs(x[k]);
    density[k] = hn::Mul(hn::Mul(x[k], x[k]), hn::Set(d, -0.5f));
  }
  short_tails(d, t, tail);
  exp_of_normal(d, density);
  for (size_t k = 0; k < kCount; ++k) {
    const V cumulative = hn::IfThenElse(hn::Lt(x[k], hn::Zero(d)), tail[k], hn::Sub(hn::Set(d, 1.0f), tail[k]));
    slope[k] = hn::Add(cumulative, hn::Mul(hn::Mul(x[k], density[k]), hn::Set(d, 0.39894228040143267794f)));
  }
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(largest, hn::Set(d, kShortTail))))) return;
  for (size_t k = 0; k < kCount; ++k) {
    const auto is_short = hn::Lt(distance_to_short_tail(d, x[k]), hn::Set(d, kShortTail));
    if (!hn::AllTrue(d, is_short)) slope[k] = hn::IfThenElse(is_short, slope[k], GeluBackwardLanes::slope(d, x[k]));
  }
}

struct GeluBackwardFloatLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V grad, V x) const {
    const V in[] = {x};
    V slope[1];
    gelu_slopes(d, in, slope);
    return hn::Mul(grad, slope[0]);
  }
};

HWY_ATTR void gelu_backward_floats(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  constexpr size_t kTogether = 4;
  const hn::ScalableTag<float> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), together = kTogether * lanes;
  const float* grad = reinterpret_cast<const float*>(data[1]);
  const float* in = reinterpret_cast<const float*>(data[2]);
  float* out = reinterpret_cast<float*>(data[0]);
  int64_t i = 0;
  for (; i + together <= n && strides[1] != 0 && strides[2] != 0; i += together) {
    V x[kTogether], slope[kTogether];
    for (size_t k = 0; k < kTogether; ++k) x[k] = hn::LoadU(d, in + i + static_cast<int64_t>(k) * lanes);
    gelu_slopes(d, x, slope);
    for (size_t k = 0; k < kTogether; ++k) {
      const int64_t at = i + static_cast<int64_t>(k) * lanes;
      hn::StoreU(hn::Mul(hn::LoadU(d, grad + at), slope[k]), d, out + at);
    }
  }
  if (i == n) return;
  const int64_t done = i * int64_t{sizeof(float)};
  char* const rest[] = {data[0] + done, data[1] + (strides[1] != 0 ? done : 0), data[2] + (strides[2] != 0 ? done : 0)};
  lanes_loop<float, GeluBackwardFloatLanes, 2>(rest, strides, n - i, strides, 1, context);
}
#endif

struct GeluTanhBackwardLanes {
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    // gelu = x s with s = sigmoid(2 v): its derivative is s + x s (1 - s) (2 v)'.
    constexpr double kScale = 1.5957691216057307118, kCubic = 0.044715;
    const V one = lanes_of(d, 1);
    const V square = hn::Mul(x, x);
    const V s = sigmoid(d, hn::Mul(x, hn::MulAdd(square, lanes_of(d, kScale * kCubic), lanes_of(d, kScale))));
    const V slope = hn::MulAdd(square, lanes_of(d, 3 * kScale * kCubic), lanes_of(d, kScale));
    const V change = hn::Mul(hn::Mul(s, hn::Sub(one, s)), slope);
    // Far from zero s (1 - s) is zero, while the polynomial may be infinite.
    const V far = hn::IfThenElse(hn::Eq(hn::Mul(s, hn::Sub(one, s)), hn::Zero(d)), s, hn::MulAdd(x, change, s));
    return hn::Mul(grad, far);
  }
};
struct MishBackwardLanes {
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    // t = tanh(softplus(x)) = n / (n + 2) with n = e^x (e^x + 2); the derivative is t + x sigmoid(x) (1 - t^2).
    const V two = lanes_of(d, 2);
    const V e = exp(d, smaller_or_nan(lanes_of(d, 22), x));
    const V n = hn::Mul(e, hn::Add(e, two));
    const V t = hn::Div(n, hn::Add(n, two));
    const V slope = hn::Mul(hn::Mul(x, sigmoid(d, x)), hn::NegMulAdd(t, t, lanes_of(d, 1)));
    return hn::Mul(grad, hn::Add(t, slope));
  }
};
struct LogSigmoidBackwardLanes {
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    return hn::Mul(grad, sigmoid(d, hn::Neg(x)));
  }
};
struct SoftplusBackwardLanes {
  double beta;
  double threshold;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    const V scaled = hn::Mul(x, lanes_of(d, beta));
    return hn::IfThenElse(hn::Gt(scaled, lanes_of(d, threshold)), grad, hn::Mul(grad, sigmoid(d, scaled)));
  }
};
struct EluBackwardLanes {
  double negative_scale;
  double positive_scale;
  double input_scale;
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V grad, V x) const {
    const V curve = hn::Mul(exp(d, hn::Mul(x, lanes_of(d, input_scale))), lanes_of(d, negative_scale * input_scale));
    return hn::Mul(grad, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), lanes_of(d, positive_scale), curve));
  }
};
template <class C>
struct SiluBackward {
  C operator()(C grad, C z) const {
    const C s = C(1) / (C(1) + std::exp(-z));
    return grad * std::conj(s * (C(1) + z * (C(1) - s)));
  }
};
void silu_backward_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) return run_floating<2>("silu_backward_cpu", loop, SiluBackwardLanes{}, kHeavyGrain);
  visit_complex("silu_backward_cpu", loop.dtype,
                [&]<class T>(Tag<T>) { run_binary<T>(loop, SiluBackward<T>{}, kSlowGrain); });
}
void gelu_backward_kernel(const PointwiseLoop& loop, std::string_view approximate) {
  if (approximate == "tanh")
    return run_floating<2>("GeluBackwardKernelImpl", loop, GeluTanhBackwardLanes{}, kHeavyGrain);
#if HWY_ARCH_ARM_A64
  const GeluBackwardFloatLanes lanes;
  if (loop.dtype == DType::Float32) return run_dense(loop, gelu_backward_floats, &lanes, kHeavyGrain);
#endif
  run_floating<2>("GeluBackwardKernelImpl", loop, GeluBackwardLanes{}, kHeavyGrain);
}
void mish_backward_kernel(const PointwiseLoop& loop) {
  run_floating<2>("mish_backward_cpu", loop, MishBackwardLanes{}, kHeavyGrain);
}
void log_sigmoid_backward_kernel(const PointwiseLoop& loop) {
  run_floating<2>("log_sigmoid_backward_cpu", loop, LogSigmoidBackwardLanes{}, kHeavyGrain);
}
void softplus_backward_kernel(const PointwiseLoop& loop, Scalar beta, Scalar threshold) {
  run_floating<2>("softplus_backward_cpu", loop, SoftplusBackwardLanes{beta.to_double(), threshold.to_double()},
                  kHeavyGrain);
}
void elu_backward_kernel(const PointwiseLoop& loop, Scalar alpha, Scalar scale, Scalar input_scale) {
  run_floating<2>("elu_backward_cpu", loop,
                  EluBackwardLanes{alpha.to_double() * scale.to_double(), scale.to_double(), input_scale.to_double()},
                  kHeavyGrain);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(sigmoid_backward)
MICA_POINTWISE_SLOT(tanh_backward)
MICA_POINTWISE_SLOT(threshold)
MICA_POINTWISE_SLOT(threshold_backward)
MICA_POINTWISE_SLOT(leaky_relu_backward)
MICA_POINTWISE_SLOT(hardtanh_backward)
MICA_POINTWISE_SLOT(hardshrink_backward)
MICA_POINTWISE_SLOT(hardsigmoid_backward)
MICA_POINTWISE_SLOT(hardswish_backward)
MICA_POINTWISE_SLOT(silu_backward)
MICA_POINTWISE_SLOT(gelu_backward)
MICA_POINTWISE_SLOT(mish_backward)
MICA_POINTWISE_SLOT(log_sigmoid_backward)
MICA_POINTWISE_SLOT(softplus_backward)
MICA_POINTWISE_SLOT(elu_backward)
}  // namespace mica::cpu
#endif
