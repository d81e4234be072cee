// Attention of a few queries, as of a text that grows by a token: float32 arithmetic, with or without a mask, heads of
// up to 128 numbers.
#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda::attention::few {

inline bool takes(const TensorView& query) { return query.sizes[2] <= 4; }

void forward(const TensorView& out, const TensorView& logsumexp, const TensorView& query, const TensorView& key,
             const TensorView& value, const TensorView& mask, bool causal, double scale);

}  // namespace mica::cuda::attention::few
