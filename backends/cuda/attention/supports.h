#pragma once

#include "mica/backend/fusion.h"
#include "mica/backend/kernel_types.h"

namespace mica::cuda {

namespace attention {
inline bool own_kernels_take(const TensorView& query, const TensorView& value) {
  return query.sizes[3] <= 128 && value.sizes[3] == query.sizes[3];
}
}  // namespace attention

bool supports_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                        const TensorView& mask);

// Whether it is attention of few queries, which a kernel of its own computes (few.h).
bool takes_few_queries(const TensorView& query, const TensorView& key, const TensorView& value, const TensorView& mask);
void run_few_queries(const FusedAttention& attention);

}  // namespace mica::cuda
