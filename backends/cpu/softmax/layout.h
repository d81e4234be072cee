// A contiguous tensor seen as [outer, count, inner] around one dimension.
#pragma once

#include <cstdint>

#include "mica/tensor_view.h"

namespace mica::cpu {

struct AroundDim {
  int64_t outer = 1, count = 1, inner = 1;
  AroundDim(const TensorView& t, int64_t dim) {
    for (int64_t d = 0; d < t.ndim; ++d) (d < dim ? outer : d == dim ? count : inner) *= t.sizes[d];
  }
};

inline constexpr int64_t kSoftmaxColumns = 256;  // columns that are worked on side by side
inline constexpr int64_t kSoftmaxGrain = 8192;   // elements that are worth a thread

}  // namespace mica::cpu
