// Derivatives of samples by the parameters of their distributions.
#pragma once

#include "mica/tensor.h"

namespace mica::formulas {

Tensor sample_dirichlet_backward(const Tensor& grad, const Tensor& concentration, const Tensor& sample);

}  // namespace mica::formulas
