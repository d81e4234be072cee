// Products of real activations with weights of 8 bits that have one scale for each row. The activations become planes
// of bytes (split_rows.h): two are as good as exact for results of 16 bits, three for float32. Rows that have no steps
// are multiplied as float32 numbers.
#include <algorithm>

#include "backends/cpu/quantized/dot_products.h"
#include "backends/cpu/quantized/split_rows.h"
#include "backends/cpu/register.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kInt8Group = 512;            // depths that share a step
constexpr int64_t kInt8TaskBytes = 32 * 1024;  // bytes of weights that are worth a thread

// out[r, n] = scales[n] * (a[r] . weights[n]).
template <class T, int kPlanes>
void int8_products(T* to, const T* a, DType dtype, const int8_t* weights, const T* scales, int64_t rows,
                   int64_t columns, int64_t depth) {
  static const DotProducts& dots = dot_products();
  constexpr int kTogether = kDotRows / kPlanes;  // rows of a
  const SplitRows split(a, dtype, rows, depth, kInt8Group, kPlanes);
  const int64_t blocks = (columns + kDotColumns - 1) / kDotColumns;
  parallel_for(0, blocks, 1 + kInt8TaskBytes / (kDotColumns * depth + 1), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t column = block * kDotColumns;
      const int count = static_cast<int>(std::min<int64_t>(kDotColumns, columns - column));
      for (int64_t first = 0; first < rows; first += kTogether) {
        const int here = static_cast<int>(std::min<int64_t>(kTogether, rows - first));
        float total[kTogether][kDotColumns] = {};
        for (int64_t g = 0; g < split.groups; ++g) {
          const int64_t k = g * kInt8Group;
          const int8_t *left[kDotRows], *right[kDotColumns];
          for (int i = 0; i < here; ++i)
            for (int p = 0; p < kPlanes; ++p) left[i * kPlanes + p] = split.plane(p) + (first + i) * depth + k;
          for (int j = 0; j < kDotColumns; ++j) right[j] = weights + (column + std::min(j, count - 1)) * depth + k;
          int32_t sums[kDotRows * kDotColumns];
          dots.tile[here * kPlanes - 1](left, right, std::min(kInt8Group, depth - k), sums);
          for (int i = 0; i < here; ++i) {
            const float step = split.steps[(first + i) * split.groups + g];
            for (int j = 0; j < count; ++j) {
              double sum = 0;  // up to 40 bits: exact
              for (int p = 0; p < kPlanes; ++p) sum = sum * kPlaneBase + sums[(i * kPlanes + p) * kDotColumns + j];
              total[i][j] += static_cast<float>(sum) * step;
            }
          }
        }
        for (int i = 0; i < here; ++i) {
          const int64_t r = first + i;
          for (int j = 0; j < count; ++j) {
            if (!split.has_steps[r]) {
              total[i][j] = 0;
              for (int64_t k = 0; k < depth; ++k)
                total[i][j] +=
                    static_cast<float>(a[r * depth + k]) * static_cast<float>(weights[(column + j) * depth + k]);
            }
            to[r * columns + column + j] = static_cast<T>(total[i][j] * static_cast<float>(scales[column + j]));
          }
        }
      }
    }
  });
}

void int8_weight_mm_kernel(const TensorView& out, const TensorView& self, const TensorView& weights,
                           const TensorView& scales) {
  visit_floating("_weight_int8pack_mm", self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    int8_products<T, sizeof(T) == 2 ? 2 : 3>(out.ptr<T>(), self.ptr<const T>(), self.dtype, weights.ptr<const int8_t>(),
                                             scales.ptr<const T>(), out.sizes[0], out.sizes[1], self.sizes[1]);
  });
}

MICA_REGISTER_CPU(int8_weight_mm, int8_weight_mm_kernel);

}  // namespace
}  // namespace mica::cpu
