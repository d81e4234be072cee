// What the kernels of recurrent layers share: products of rows of states with weights.
#pragma once

#include "backends/cuda/gemm/cublas_lt.h"
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
  DType dtype;  // of `from` and the weight
  Device device;
  const void* weight;
  int64_t depth, columns;
  bool transposed;      // the weight lies as (columns, depth)
  bool narrow = false;  // the operands are 16-bit floats, the result is float32
  void operator()(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows,
                  bool accumulate) const {
    if (rows == 0 || depth == 0) return;
    const Operand a(from, dtype, device, rows, depth, from_stride, 1),
        out(to, narrow ? DType::Float32 : dtype, device, rows, columns, to_stride, 1),
        b(weight, dtype, device, depth, columns, transposed ? 1 : columns, transposed ? depth : 1);
    MatmulCall call;
    call.out = out.view;
    call.a = a.view;
    call.b = b.view;
    call.beta = accumulate ? 1 : 0;
    if (!narrow) return matmul(call);
    MICA_CHECK(cublas_matmul(call), "cuBLASLt does not take the product of a recurrent layer's step");
  }
};

// Whether the products of the steps take 16-bit floats, of which float32 holds the products without an error: where a
// row of either operand is made of vectors.
inline bool has_narrow_products(DType stored, int64_t state, int64_t gate_width, bool projected) {
  return (stored == DType::BFloat16 || stored == DType::Float16) && !projected && state % 8 == 0 && gate_width % 8 == 0;
}

__device__ inline uint16_t narrow_bits(float v, bool half) {
  return half ? __half_as_ushort(__float2half_rn(v)) : __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

struct Narrow {
  const float* from;
  uint16_t* to;
  bool half;
  __device__ void operator()(int64_t i) const { to[i] = narrow_bits(from[i], half); }
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
