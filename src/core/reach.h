#pragma once

#include "mica/core/tensor_impl.h"

namespace mica {

// Throws if a tensor's elements do not lie in its storage, which somebody has made smaller (storage.resize_). To be
// called where a marked storage is followed: others are as large as when their tensors were made.
void check_reach(const TensorImpl& t);

}  // namespace mica
