// Products with a matrix of which two in every four elements of a row are kept.
#pragma once

#include "mica/backend/cuda_extension.h"

namespace mica::cuda {

const SemiStructuredApi& semi_structured();

}  // namespace mica::cuda
