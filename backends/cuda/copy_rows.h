#pragma once

#include "mica/backend/pointwise_loop.h"

namespace mica::cuda {

// Whether a copy of elements of that many bytes, which keeps their bits, consists of long rows and was queued. Elements
// of a row may lie apart, in either direction.
bool copy_rows(const PointwiseLoop& loop, int64_t size);

}  // namespace mica::cuda
