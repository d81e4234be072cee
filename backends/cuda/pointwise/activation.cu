// Activations and their derivatives.
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise/define.cuh"
#include "backends/cuda/pointwise/functions.cuh"

namespace mica::cuda {

void relu(const PointwiseLoop& loop) {
  visit_real("relu", loop.dtype, [&]<class T>(Tag<T>) { run_common<T, T>(loop, Relu<compute_t<T>>{}); });
}
void sigmoid(const PointwiseLoop& loop) {
  visit_floating_complex("sigmoid", loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (is_complex_v<T>) {
      run_rare<T, T>(loop, Sigmoid<T>{});
    } else {
      run_pointwise<T, T>(loop, Sigmoid<compute_t<T>>{});
    }
  });
}
void sigmoid_backward(const PointwiseLoop& loop) {
  visit_floating_complex("sigmoid_backward", loop.dtype,
                         [&]<class T>(Tag<T>) { run_common<T, T, T>(loop, SigmoidBackward<compute_t<T>>{}); });
}
void tanh_backward(const PointwiseLoop& loop) {
  visit_floating_complex("tanh_backward", loop.dtype,
                         [&]<class T>(Tag<T>) { run_common<T, T, T>(loop, TanhBackward<compute_t<T>>{}); });
}
void threshold_backward(const PointwiseLoop& loop, Scalar threshold) {
  visit_real("threshold_backward", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_common<T, T, T>(loop, ThresholdBackward<C>{number<C>(threshold)});
  });
}
void leaky_relu(const PointwiseLoop& loop, Scalar negative_slope) {
  visit_floating("leaky_relu", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_pointwise<T, T>(loop, LeakyRelu<C>{number<C>(negative_slope)});
  });
}
void leaky_relu_backward(const PointwiseLoop& loop, Scalar negative_slope) {
  visit_floating("leaky_relu_backward", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_pointwise<T, T, T>(loop, LeakyReluBackward<C>{number<C>(negative_slope)});
  });
}
void silu(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Complex64) return run_rare<complexf, complexf>(loop, Silu<complexf>{});
  if (loop.dtype == DType::Complex128) return run_rare<complexd, complexd>(loop, Silu<complexd>{});
  visit_floating("silu", loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Silu<compute_t<T>>{}); });
}
void silu_backward(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Complex64) return run_rare<complexf, complexf, complexf>(loop, SiluBackward<complexf>{});
  if (loop.dtype == DType::Complex128) return run_rare<complexd, complexd, complexd>(loop, SiluBackward<complexd>{});
  visit_floating("silu_backward", loop.dtype,
                 [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, SiluBackward<compute_t<T>>{}); });
}
void gelu(const PointwiseLoop& loop, std::string_view approximate) {
  const bool by_tanh = approximate == "tanh";
  visit_floating("gelu", loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (sizeof(T) == 2) {
      if (!by_tanh) return run_pointwise<T, T>(loop, NarrowGelu{});
    }
    run_pointwise<T, T>(loop, Gelu<compute_t<T>>{by_tanh});
  });
}
void gelu_backward(const PointwiseLoop& loop, std::string_view approximate) {
  const bool by_tanh = approximate == "tanh";
  visit_floating("gelu_backward", loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (sizeof(T) == 2) {
      if (!by_tanh) return run_pointwise<T, T, T>(loop, NarrowGeluBackward{});
    }
    run_pointwise<T, T, T>(loop, GeluBackward<compute_t<T>>{by_tanh});
  });
}

}  // namespace mica::cuda
