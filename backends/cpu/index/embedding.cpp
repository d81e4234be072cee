// Tables of rows: their gradient, and rows scaled down to a norm.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/cpu/index/rows.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Half> {
  using type = float;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};

void embedding_dense_backward_kernel(const TensorView& out, const TensorView& grad, const TensorView& indices,
                                     int64_t padding_idx, bool scale_grad_by_freq) {
  const int64_t rows = out.sizes[0], width = out.sizes[1], count = indices.numel;
  const PositionsByRow positions(indices.ptr<const int64_t>(), count, rows);
  visit_floating_complex("embedding_backward", out.dtype, [&]<class T>(Tag<T>) {
    using A = typename Accumulator<T>::type;
    auto add_rows = [&](int64_t first, int64_t last) {
      std::vector<A> sums(static_cast<size_t>(width));
      for (int64_t r = first; r < last; ++r) {
        const int64_t from = positions.begin[r], to = positions.begin[r + 1];
        if (from == to || r == padding_idx) continue;
        std::fill(sums.begin(), sums.end(), A(0));
        for (int64_t k = from; k < to; ++k) {
          const T* row = grad.ptr<const T>() + positions.order[k] * grad.strides[0];
          const int64_t step = grad.strides[1];
          if (step == 1) {
            for (int64_t i = 0; i < width; ++i) sums[i] += static_cast<A>(row[i]);
          } else {
            for (int64_t i = 0; i < width; ++i) sums[i] += static_cast<A>(row[i * step]);
          }
        }
        const A factor = scale_grad_by_freq ? A(1) / A(static_cast<float>(to - from)) : A(1);
        T* place = out.ptr<T>() + r * out.strides[0];
        for (int64_t i = 0; i < width; ++i) place[i * out.strides[1]] = static_cast<T>(sums[i] * factor);
      }
    };
    // Parts have about the same number of positions, not of rows.
    const int64_t parts = count * width < 65536 ? 1 : get_num_threads();
    parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      add_rows(positions.row_at(begin, parts), positions.row_at(end, parts));
    });
  });
}

template <class T>
double row_norm(const T* row, int64_t step, int64_t width, double p) {
  double total = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double v = std::abs(static_cast<double>(row[i * step]));
    if (p == 2) {
      total += v * v;
    } else if (std::isinf(p)) {
      total = p > 0 ? std::max(total, v) : (i ? std::min(total, v) : v);
    } else if (p == 0) {
      total += v != 0;
    } else if (p == 1) {
      total += v;
    } else {
      total += std::pow(v, p);
    }
  }
  if (p == 2) return std::sqrt(total);
  return std::isinf(p) || p == 0 || p == 1 ? total : std::pow(total, 1 / p);
}

void embedding_renorm_kernel(const TensorView& self, const TensorView& indices, double max_norm, double norm_type) {
  const int64_t width = self.sizes[1], step = self.strides[1];
  std::vector<int64_t> rows(indices.ptr<const int64_t>(), indices.ptr<const int64_t>() + indices.numel);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  visit_floating("embedding_renorm", self.dtype, [&]<class T>(Tag<T>) {
    parallel_for(0, static_cast<int64_t>(rows.size()), std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r) {
                     T* row = self.ptr<T>() + rows[r] * self.strides[0];
                     const double norm = row_norm(row, step, width, norm_type);
                     if (!(norm > max_norm)) continue;
                     const double scale = max_norm / (norm + 1e-7);
                     for (int64_t i = 0; i < width; ++i) row[i * step] = T(static_cast<double>(row[i * step]) * scale);
                   }
                 });
  });
}

MICA_REGISTER_CPU(embedding_dense_backward, embedding_dense_backward_kernel);
MICA_REGISTER_CPU(embedding_renorm, embedding_renorm_kernel);

}  // namespace
}  // namespace mica::cpu
