#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda {

// Whether the product was queued through padded copies: 16-bit floats, one matrix, large, and of sizes that no vector
// of 16 bytes divides.
bool padded_matmul(const MatmulCall& call);

}  // namespace mica::cuda
