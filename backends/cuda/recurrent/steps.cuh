// What the kernels of recurrent layers share: the order of the time steps, and products of rows of states with weights.
#pragma once

#include <vector>

#include "backends/cuda/places.cuh"
#include "mica/array_ref.h"

namespace mica::cuda {

void matmul(const MatmulCall& call);

namespace recurrent {

enum class CellKind : int64_t { Relu, Tanh, Lstm, Gru };

inline int64_t gates_of(CellKind kind) { return kind == CellKind::Lstm ? 4 : kind == CellKind::Gru ? 3 : 1; }

// One step of a run: `count` rows from `offset`. The state before row i is row i of the step run before, which has
// `before_count` rows from `before_offset`; rows beyond them begin here, from the initial state.
struct TimeStep {
  int64_t offset, count;
  int64_t before_offset, before_count;
};

inline std::vector<TimeStep> time_steps(IntArrayRef batch_sizes, bool reverse) {
  const size_t steps = batch_sizes.size();
  std::vector<int64_t> offsets(steps + 1, 0);
  for (size_t t = 0; t < steps; ++t) offsets[t + 1] = offsets[t] + batch_sizes[t];
  std::vector<TimeStep> run;
  run.reserve(steps);
  TimeStep last{0, 0, 0, 0};
  for (size_t i = 0; i < steps; ++i) {
    const size_t t = reverse ? steps - 1 - i : i;
    const int64_t count = batch_sizes[t];
    last = {offsets[t], count, last.offset, std::min(count, last.count)};
    run.push_back(last);
  }
  return run;
}

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
