#pragma once

#include "mica/tensor.h"

namespace mica {

// For operations that torch lets write to expanded tensors. Returns true, after a warning, if `target` is expanded;
// then it is open which of several values a repeated element keeps.
bool warn_if_expanded(const char* op, const Tensor& target);

}  // namespace mica
