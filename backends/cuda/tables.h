#pragma once

#include "mica/backend/layer_backend.h"

namespace mica::cuda {

const KernelTable& kernels();
const LayerKernelTable& layer_kernels();

}  // namespace mica::cuda
