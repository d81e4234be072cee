// The attention that the kernels of this folder take: 16-bit floats, up to 128 numbers in a head, no mask but the
// causal one. cuDNN takes most of that, and wider heads. Everything else is composed of products and a softmax.
#pragma once

#include "backends/cuda/attention/supports.h"
#include "backends/cuda/attention/tiles.cuh"
#include "mica/backend/kernel_types.h"
#include "mica/error.h"

namespace mica::cuda::attention {

inline Strides strides_of(const TensorView& t) { return {t.strides[0], t.strides[1], t.strides[2]}; }

template <class T>
Problem<T> problem(const TensorView& query, const TensorView& key, const TensorView& value, bool causal, double scale) {
  return {query.ptr<const T>(),
          key.ptr<const T>(),
          value.ptr<const T>(),
          strides_of(query),
          strides_of(key),
          strides_of(value),
          query.sizes[1],
          key.sizes[1],
          query.sizes[2],
          key.sizes[2],
          static_cast<int>(query.sizes[3]),
          causal,
          static_cast<float>(scale)};
}

// The gradients by the matrix unit. The given gradient has the layout that inputs need; `products` holds the sum of
// grad * out for each query.
void matrix_backward(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
                     const TensorView& grad_out, const TensorView& logsumexp, const float* products,
                     const TensorView& query, const TensorView& key, const TensorView& value, bool causal,
                     double scale);

template <class F>
void visit(DType dtype, int64_t width, const F& f) {
  if (dtype == DType::Float16) {
    if (width <= 64) return f.template operator()<half, 64>();
    return f.template operator()<half, 128>();
  }
  if (dtype != DType::BFloat16) unsupported_dtype("attention_forward", dtype);
  if (width <= 64) return f.template operator()<bfloat16, 64>();
  f.template operator()<bfloat16, 128>();
}

}  // namespace mica::cuda::attention
