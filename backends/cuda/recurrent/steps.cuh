// What the kernels of recurrent layers share: products of rows of states with weights.
#pragma once

#include "backends/cuda/places.cuh"
#include "backends/shared/time_steps.h"

namespace mica::cuda {

void matmul(const MatmulCall& call);

namespace recurrent {

// A matrix of a product, with room for its sizes.
struct Operand {
  int64_t sizes[3], strides[3];
  TensorView view;
  Operand(const void* data, DType dtype, Device device, int64_t rows, int64_t columns, int64_t row_stride,
          int64_t column_stride)
      : sizes{1, rows, columns}, strides{0, row_stride, column_stride} {
    view.data = const_cast<void*>(data);
    view.sizes = sizes;
    view.strides = strides;
    view.numel = rows * columns;
    view.ndim = 3;
    view.dtype = dtype;
    view.device = device;
  }
  Operand(const Operand&) = delete;
};

// to (+)= from @ weight, or @ weight^T
struct Product {
  DType dtype;
  Device device;
  const void* weight;
  int64_t depth, columns;
  bool transposed;  // the weight lies as (columns, depth)
  void operator()(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows,
                  bool accumulate) const {
    if (rows == 0 || depth == 0) return;
    const Operand a(from, dtype, device, rows, depth, from_stride, 1),
        out(to, dtype, device, rows, columns, to_stride, 1),
        b(weight, dtype, device, depth, columns, transposed ? 1 : columns, transposed ? depth : 1);
    MatmulCall call;
    call.out = out.view;
    call.a = a.view;
    call.b = b.view;
    call.beta = accumulate ? 1 : 0;
    matmul(call);
  }
};

template <class T>
__device__ T sigmoid(T x) {
  return T(1) / (T(1) + ::exp(-x));
}
// Through a sigmoid or a hyperbolic tangent whose result was y.
template <class T>
__device__ T through_sigmoid(T grad, T y) {
  return grad * (y * (T(1) - y));
}
template <class T>
__device__ T through_tanh(T grad, T y) {
  return grad - grad * y * y;
}

template <class T>
T* pointer_or_null(const TensorView& t) {
  return t.defined() ? t.ptr<T>() : nullptr;
}

}  // namespace recurrent
}  // namespace mica::cuda
