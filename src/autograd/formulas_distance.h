// Derivatives of distances between rows.
#pragma once

#include "mica/tensor.h"

namespace mica::formulas {

Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& distances);

}  // namespace mica::formulas
