// Attention of a few queries, as of a text that grows by a token: float32 arithmetic, with or without a mask, heads of
// up to 128 numbers.
#pragma once

#include "mica/backend/fusion.h"

namespace mica::cuda::attention::few {

inline bool takes(const TensorView& query) { return query.sizes[2] <= 4; }

void forward(const FusedAttention& attention);

}  // namespace mica::cuda::attention::few
