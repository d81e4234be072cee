// Sums, means and maxima of bags of rows.
#include <algorithm>
#include <vector>

#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

template <class T>
using Wide = std::conditional_t<sizeof(T) == 2, float, T>;

void embedding_bag_kernel(const TensorView& out, const TensorView& bag_size, const TensorView& max_indices,
                          const TensorView& weight, const TensorView& indices, const TensorView& begins,
                          const TensorView& per_sample_weights, int64_t mode, int64_t padding_idx) {
  const int64_t bags = out.sizes[0], width = out.sizes[1];
  const int64_t *index = indices.ptr<const int64_t>(), *begin_of = begins.ptr<const int64_t>();
  const bool is_max = mode == 2;
  const int64_t per_bag = std::max<int64_t>(1, indices.numel / bags) * std::max<int64_t>(1, width);
  visit_floating("embedding_bag", weight.dtype, [&]<class T>(Tag<T>) {
    using C = Wide<T>;
    const T *table = weight.ptr<const T>(), *factors = per_sample_weights.ptr<const T>();
    parallel_for(0, bags, std::max<int64_t>(1, 16384 / per_bag), [&](int64_t first, int64_t last) {
      std::vector<C> totals(static_cast<size_t>(width));
      C* total = totals.data();
      for (int64_t b = first; b < last; ++b) {
        std::fill(totals.begin(), totals.end(), C(0));
        int64_t* from = is_max ? max_indices.ptr<int64_t>() + b * width : nullptr;
        int64_t counted = 0;
        for (int64_t i = begin_of[b]; i < begin_of[b + 1]; ++i) {
          if (index[i] == padding_idx) continue;
          const T* row = table + index[i] * width;
          if (is_max) {
            for (int64_t d = 0; d < width; ++d) {
              const C v = static_cast<C>(row[d]);
              if (counted > 0 && !(v > total[d])) continue;
              total[d] = v;
              from[d] = index[i];
            }
          } else if (factors) {
            const C f = static_cast<C>(factors[i]);
            for (int64_t d = 0; d < width; ++d) total[d] += static_cast<C>(row[d]) * f;
          } else {
            for (int64_t d = 0; d < width; ++d) total[d] += static_cast<C>(row[d]);
          }
          ++counted;
        }
        bag_size.ptr<int64_t>()[b] = counted;
        const C factor = mode == 1 && counted > 0 ? C(1) / static_cast<C>(counted) : C(1);
        T* to = out.ptr<T>() + b * width;
        for (int64_t d = 0; d < width; ++d) to[d] = static_cast<T>(mode == 1 ? total[d] * factor : total[d]);
      }
    });
  });
}

MICA_REGISTER_CPU(embedding_bag, embedding_bag_kernel);

}  // namespace
}  // namespace mica::cpu
