// Derivatives of distances between rows.
#pragma once

#include "mica/tensor.h"

namespace mica::formulas {

// The gradient that x1 gets from the distances of its rows to those of x2.
Tensor cdist_backward(const Tensor& grad, const Tensor& x1, const Tensor& x2, double p, const Tensor& distances);
Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& distances);

}  // namespace mica::formulas
