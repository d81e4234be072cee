#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda {

bool supports_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                        const TensorView& mask);

}  // namespace mica::cuda
