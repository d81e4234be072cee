// The negative log-likelihood of labels: one element is read of each row, and one written in its gradient.
#include "backends/cuda/bounds.h"
#include "backends/cuda/loss/finish.cuh"
#include "backends/cuda/softmax/rows.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct NllRow {
  const T* x;
  Labels labels;
  Parameter<T> weight;
  int64_t inner, strides[3];
  T* each;
  double *losses, *weights;
  Bounds bounds;
  __device__ void operator()(int64_t r) const {
    using C = compute_t<T>;
    const int64_t label = labels.at(r, bounds);
    double loss = 0, w = 0;
    if (label >= 0) {
      w = weight.given() ? static_cast<double>(weight.at(label)) : 1;
      const int64_t at = r / inner * strides[0] + label * strides[1] + r % inner * strides[2];
      loss = -w * static_cast<double>(convert<C>(x[at]));
    }
    if (each) each[r] = convert<T>(static_cast<C>(loss));
    losses[r] = loss;
    weights[r] = w;
  }
};
template <class T>
struct NllGradient {
  T* out;
  const T *grad, *total;
  Labels labels;
  Parameter<T> weight;
  int64_t inner, classes, reduction;
  Bounds bounds;
  __device__ void operator()(int64_t r) const {
    using C = compute_t<T>;
    const int64_t label = labels.at(r, bounds);
    if (label < 0) return;
    C factor = convert<C>(grad[reduction == kNone ? r : 0]);
    if (reduction == kMean) factor /= convert<C>(*total);
    if (weight.given()) factor *= weight.at(label);
    out[(r / inner * classes + label) * inner + r % inner] = convert<T>(-factor);
  }
};

}  // namespace

void nll_loss(const TensorView& out, const TensorView& total_weight, const TensorView& input, const TensorView& target,
              const TensorView& weight, int64_t reduction, int64_t ignore_index) {
  const int device = input.device.index();
  DeviceGuard guard(device);
  const int64_t rows = input.sizes[0] * input.sizes[2];
  visit_floating("nll_loss", input.dtype, [&]<class T>(Tag<T>) {
    const Workspace parts(static_cast<size_t>(2 * rows + 2) * sizeof(double), device);
    auto *losses = static_cast<double*>(parts.data()), *weights = losses + rows;
    for_each(device, rows,
             NllRow<T>{input.ptr<const T>(),
                       Labels(target, input.sizes[1], ignore_index),
                       Parameter<T>(weight),
                       input.sizes[2],
                       {input.strides[0], input.strides[1], input.strides[2]},
                       reduction == kNone ? out.ptr<T>() : nullptr,
                       losses,
                       weights,
                       Bounds::of("nll_loss", device)});
    finish_loss<T, T><<<1, 1024, 0, current_stream(device)>>>(losses, weights, rows,
                                                              reduction == kNone ? nullptr : out.ptr<T>(),
                                                              total_weight.ptr<T>(), 1, reduction == kMean);
  });
  MICA_CUDA(cudaGetLastError());
}

void nll_loss_backward(const TensorView& grad_input, const TensorView& grad, const TensorView& target,
                       const TensorView& weight, const TensorView& total_weight, int64_t reduction,
                       int64_t ignore_index) {
  const int device = grad_input.device.index();
  DeviceGuard guard(device);
  const int64_t rows = grad_input.sizes[0] * grad_input.sizes[2];
  visit_floating("nll_loss_backward", grad_input.dtype, [&]<class T>(Tag<T>) {
    for_each(
        device, rows,
        NllGradient<T>{grad_input.ptr<T>(), grad.ptr<const T>(), total_weight.ptr<const T>(),
                       Labels(target, grad_input.sizes[1], ignore_index), Parameter<T>(weight), grad_input.sizes[2],
                       grad_input.sizes[1], reduction, Bounds::of("nll_loss_backward", device)});
  });
}

}  // namespace mica::cuda
