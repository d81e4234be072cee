// Derivatives of operations that pick elements by their order.
#pragma once

#include "mica/tensor.h"

namespace mica::formulas {

// The gradient goes to where each value came from.
Tensor value_selecting_backward(const Tensor& grad, int64_t dim, const Tensor& indices, IntArrayRef sizes,
                                bool keepdim);

}  // namespace mica::formulas
