// Matrix products through cuBLASLt.
#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda {

// Whether the product was queued. Operands of 16-bit floats may have a result of float32. False where cuBLASLt cannot
// take it: an integer dtype, or strides that are no matrix of its own.
bool cublas_matmul(const MatmulCall& call);

}  // namespace mica::cuda
