// Functions that the derivatives of ops/layers/quantized.toml call.
#pragma once

#include "mica/tensor.h"

namespace mica::formulas {

// The gradient where a number was within the range of the integers, zero elsewhere.
Tensor fake_quantize_backward(const Tensor& grad, const Tensor& self, const Tensor& scale, const Tensor& zero_point,
                              int64_t quant_min, int64_t quant_max);

}  // namespace mica::formulas
