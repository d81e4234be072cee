// The parts of sparse, quantized and nested tensors.
#pragma once

#include "mica/inspect.h"

namespace mica::inspect {

void explain_sparse(const Tensor& t, Anatomy& a);
void explain_quantized(const Tensor& t, Anatomy& a);

}  // namespace mica::inspect
