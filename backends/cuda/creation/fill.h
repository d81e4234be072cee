#pragma once

#include "mica/backend/pointwise_loop.h"

namespace mica::cuda {

// Whether the elements lie side by side, and were queued to become `element`, of that many bytes (a power of two up to
// 16).
bool fill_dense(const PointwiseLoop& loop, const void* element, int64_t size);

}  // namespace mica::cuda
