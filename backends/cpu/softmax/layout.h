// A contiguous tensor seen as [outer, count, inner] around one dimension.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mica/backend/tensor_view.h"
#include "mica/parallel.h"

namespace mica::cpu {

inline constexpr int64_t kSoftmaxColumns = 1024;  // columns that are worked on side by side
inline constexpr int64_t kSoftmaxGrain = 4096;    // elements that are worth a thread

struct AroundDim {
  int64_t outer = 1, count = 1, inner = 1;
  AroundDim(const TensorView& t, int64_t dim) {
    for (int64_t d = 0; d < t.ndim; ++d) (d < dim ? outer : d == dim ? count : inner) *= t.sizes[d];
  }

  // Blocks are as wide as the cache allows, for long runs of memory, but there are enough of them for all threads.
  int64_t block_width() const {
    const int64_t per_thread = (outer * inner + get_num_threads() - 1) / get_num_threads();
    return std::min({inner, kSoftmaxColumns, std::max<int64_t>(64, (per_thread + 63) / 64 * 64)});
  }
};

}  // namespace mica::cpu
