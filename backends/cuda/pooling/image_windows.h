// Maxima of small square windows of images, the ones that nearly every network has.
#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda {

// Returns false, and has done nothing, where the windows are others or the images too large.
bool max_pool_images(const TensorView& out, const TensorView& indices, const TensorView& self, IntArrayRef kernel,
                     IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool channels_last);

}  // namespace mica::cuda
