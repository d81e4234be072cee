#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda {

// Whether the product was queued as that of one long row and one column. It takes as long as reading both does.
bool dot_matmul(const MatmulCall& call);

}  // namespace mica::cuda
