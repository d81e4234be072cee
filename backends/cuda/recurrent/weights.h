// Parameters of recurrent layers in one piece of memory, as cuDNN reads them.
#pragma once

#include <vector>

#include "mica/backend/kernel_types.h"

namespace mica::cuda::recurrent {

// Copies contiguous tensors to their places in `to`, given in elements.
void gather_weights(void* to, TensorViewList parameters, const std::vector<int64_t>& offsets, int device);

}  // namespace mica::cuda::recurrent
