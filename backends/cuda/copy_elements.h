// Copies of elements from one place of a device's memory to another, whatever their strides.
#pragma once

#include "mica/backend/tensor_view.h"

namespace mica::cuda {

// `to` and `from` have one shape, one dtype and one device.
void copy_elements(const TensorView& to, const TensorView& from);

}  // namespace mica::cuda
