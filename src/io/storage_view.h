// Tensors from numbers that a file gives, and that may be wrong.
#pragma once

#include "mica/tensor.h"

namespace mica::io {

// The tensor of this geometry over the storage. Throws where the geometry reaches outside of it, whatever the numbers
// are; the storage is never grown.
Tensor view_storage(const Storage& storage, DType dtype, int64_t offset, IntArrayRef sizes, IntArrayRef strides);

}  // namespace mica::io
