// Numbers to and from the bytes of one element.
#pragma once

#include "mica/core/scalar.h"

namespace mica {

void write_scalar(const Scalar& value, DType dtype, void* to);  // converts as tensors do: what does not fit wraps
Scalar read_scalar(DType dtype, const void* from);

}  // namespace mica
