// Products of matrices of 8-bit integers, summed in 32 bits.
#include <algorithm>

#include "backends/cpu/quantized/dot_products.h"
#include "backends/cpu/quantized/int8_tiles.h"
#include "backends/cpu/register.h"
#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kPanel = 64;  // rows of b that stay in the cache while all rows of a pass

// sums[i * 4 + j] of up to 4 x 4 rows; missing rows repeat the last one.
void tile_sums(const int8_t* const* a, int rows, const int8_t* const* b, int64_t depth, int32_t* sums) {
  static const DotProducts& dots = dot_products();
  if (depth <= kMaxDotDepth) return dots.tile[rows - 1](a, b, depth, sums);
  std::fill_n(sums, rows * kDotColumns, 0);
  for (int64_t k = 0; k < depth; k += kMaxDotDepth) {
    const int8_t *left[kDotRows], *right[kDotColumns];
    for (int i = 0; i < rows; ++i) left[i] = a[i] + k;
    for (int j = 0; j < kDotColumns; ++j) right[j] = b[j] + k;
    int32_t part[kDotRows * kDotColumns];
    dots.tile[rows - 1](left, right, std::min(kMaxDotDepth, depth - k), part);
    for (int i = 0; i < rows * kDotColumns; ++i)  // unsigned, because such sums may leave 32 bits
      sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(part[i]));
  }
}

// Calls put(row, column, sum) for every element of a @ b^T, on all threads.
template <class Put>
void products(const int8_t* a, int64_t rows, const int8_t* b, int64_t columns, int64_t depth, const Put& put) {
  const int64_t panels = (columns + kPanel - 1) / kPanel, strips = (rows + kDotRows - 1) / kDotRows;
  const int64_t work = kDotRows * kPanel * (depth + 1);
  parallel_for(0, panels * strips, 1 + 262144 / work, [&](int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w) {
      const int64_t first_row = w % strips * kDotRows, panel = w / strips * kPanel;
      const int count = static_cast<int>(std::min<int64_t>(kDotRows, rows - first_row));
      const int8_t* left[kDotRows];
      for (int i = 0; i < count; ++i) left[i] = a + (first_row + i) * depth;
      for (int64_t c = panel; c < std::min(columns, panel + kPanel); c += kDotColumns) {
        const int8_t* right[kDotColumns];
        for (int j = 0; j < kDotColumns; ++j) right[j] = b + std::min(columns - 1, c + j) * depth;
        int32_t sums[kDotRows * kDotColumns];
        tile_sums(left, count, right, depth, sums);
        for (int i = 0; i < count; ++i)
          for (int j = 0; j < kDotColumns && c + j < columns; ++j) put(first_row + i, c + j, sums[i * kDotColumns + j]);
      }
    }
  });
}

void int8_mm_kernel(const TensorView& out, const TensorView& a, const TensorView& b) {
  auto* to = out.ptr<int32_t>();
  const auto *const left = a.ptr<const int8_t>(), *const right = b.ptr<const int8_t>();
  const int64_t rows = out.sizes[0], columns = out.sizes[1], depth = a.sizes[1];
  if (worth_int8_tiles(rows, columns, depth)) return int8_tile_products(left, rows, right, columns, depth, to);
  products(left, rows, right, columns, depth, [=](int64_t r, int64_t c, int32_t sum) { to[r * columns + c] = sum; });
}

MICA_REGISTER_CPU(int8_mm, int8_mm_kernel);

}  // namespace
}  // namespace mica::cpu
