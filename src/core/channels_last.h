// Which memory format a tensor asks its results to have.
#pragma once

#include "mica/core/array_ref.h"

namespace mica {

// Whether memory addresses never fall from channels to the last dimensions backwards to the batch: the order of
// channels-last tensors and of slices of them.
bool has_channels_last_strides(IntArrayRef sizes, IntArrayRef strides);

}  // namespace mica
