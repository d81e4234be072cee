#pragma once

#include "mica/tensor.h"

namespace mica {

// For operations that torch lets write to expanded tensors: true, after a warning, if `target` is one. Which of several
// values a repeated element keeps is then left open.
bool warn_if_expanded(const char* op, const Tensor& target);

}  // namespace mica
