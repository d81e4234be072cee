// Attention in float32 arithmetic, with or without a mask: float32 inputs, and 16-bit ones with a mask. Heads of up to
// 128 numbers.
#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda::attention::plain {

void forward(const TensorView& out, const TensorView& logsumexp, const TensorView& query, const TensorView& key,
             const TensorView& value, const TensorView& mask, bool causal, double scale);

// The given gradient has the layout that inputs need. `products` holds the sum of grad * out for each query.
void backward(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
              const TensorView& grad_out, const TensorView& logsumexp, const float* products, const TensorView& query,
              const TensorView& key, const TensorView& value, const TensorView& mask, bool causal, double scale);

}  // namespace mica::cuda::attention::plain
