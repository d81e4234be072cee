// Products of 8-bit floats with scales, by cuBLASLt.
#pragma once

#include "mica/backend/tensor_view.h"

namespace mica::cuda {

// Whether the slot scaled_matmul takes these inputs: out, a, b, scale_a, scale_b, bias. The tensor cores
// for 8-bit floats, the layouts and the dtypes decide, and in the end cuBLASLt's heuristic.
bool supports_scaled_matmul(const TensorView* const* inputs);

}  // namespace mica::cuda
