// Products of real activations with weights of 8 bits that have one scale for each row. The activations become planes
// of bytes (split_rows.h): two are as good as exact for results of 16 bits, three for float32. Rows that have no steps
// are multiplied as float32 numbers.
#include <algorithm>

#include "backends/cpu/quantized/byte_weights.h"
#include "backends/cpu/quantized/dot_products.h"
#include "backends/cpu/quantized/split_rows.h"
#include "backends/cpu/register.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kInt8Group = 512;             // depths that share a step
constexpr int64_t kInt8TaskBytes = 32 * 1024;   // bytes of weights that are worth a thread
constexpr int64_t kInt8RowsBytes = 256 * 1024;  // bytes of activations that stay in the second cache

// out[r, n] = scales[n] * (a[r] . weights[n]).
template <class T>
struct Int8Product {
  T* out;
  const T* a;
  DType dtype;
  const int8_t* weights;
  const T* scales;
  int64_t rows, columns, depth;

  // Writes `count` columns of row r, of which the planes gave these sums; only if they have steps.
  void store(const SplitRows& split, int64_t r, int64_t column, int64_t count, const float* sums) const {
    T* const to = out + r * columns + column;
    if (split.has_steps[r]) {
      for (int64_t j = 0; j < count; ++j) to[j] = static_cast<T>(sums[j] * static_cast<float>(scales[column + j]));
      return;
    }
    for (int64_t j = 0; j < count; ++j) {
      float total = 0;
      for (int64_t k = 0; k < depth; ++k)
        total += static_cast<float>(a[r * depth + k]) * static_cast<float>(weights[(column + j) * depth + k]);
      to[j] = static_cast<T>(total * static_cast<float>(scales[column + j]));
    }
  }
};

// As dot products: every group's sum is brought together by itself.
template <class T, int kPlanes>
void dot_int8_products(const Int8Product<T>& p) {
  static const DotProducts& dots = dot_products();
  constexpr int kTogether = kDotRows / kPlanes;  // rows of a
  const int64_t rows = p.rows, columns = p.columns, depth = p.depth;
  const SplitRows split(p.a, p.dtype, rows, depth, kInt8Group, kPlanes);
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
            for (int q = 0; q < kPlanes; ++q) left[i * kPlanes + q] = split.plane(q) + (first + i) * depth + k;
          for (int j = 0; j < kDotColumns; ++j) right[j] = p.weights + (column + std::min(j, count - 1)) * depth + k;
          int32_t sums[kDotRows * kDotColumns];
          dots.tile[here * kPlanes - 1](left, right, std::min(kInt8Group, depth - k), sums);
          for (int i = 0; i < here; ++i) {
            const float step = split.steps[(first + i) * split.groups + g];
            for (int j = 0; j < count; ++j) {
              double sum = 0;  // up to 40 bits: exact
              for (int q = 0; q < kPlanes; ++q) sum = sum * kPlaneBase + sums[(i * kPlanes + q) * kDotColumns + j];
              total[i][j] += static_cast<float>(sum) * step;
            }
          }
        }
        for (int i = 0; i < here; ++i) p.store(split, first + i, column, count, total[i]);
      }
    }
  });
}

// Row by row: sums stay in lanes to the end of a row.
template <class T, int kPlanes>
void byte_rows_products(const ByteWeights& machine, const Int8Product<T>& p, const SplitRows& split) {
  const int64_t columns = p.columns, blocks = (columns + kByteColumns - 1) / kByteColumns;
  parallel_for(0, blocks, 1 + kInt8TaskBytes / (kByteColumns * p.depth + 1), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t column = block * kByteColumns, count = std::min<int64_t>(kByteColumns, columns - column);
      for (int64_t r = 0; r < p.rows; ++r) {
        float sums[kByteColumns];
        ByteRow row{p.weights + column * p.depth, count, p.depth, kInt8Group, {}, &split.steps[r * split.groups], sums};
        for (int q = 0; q < kPlanes; ++q) row.planes[q] = split.plane(q) + r * p.depth;
        machine.row[kPlanes - 2](row);
        p.store(split, r, column, count, sums);
      }
    }
  });
}

// Tile by tile: weights of 16 columns and activations of some rows are arranged first. There are rows for a whole tile,
// and the last tile begins so early that its rows are all there.
template <class T, int kPlanes>
void byte_tiles_products(const ByteWeights& machine, const Int8Product<T>& p, const SplitRows& split) {
  constexpr int kRows = byte_rows(kPlanes), kHalf = kRows / 2;
  const int64_t rows = p.rows, columns = p.columns, depth = p.depth, groups = split.groups;
  const int64_t tiles = (rows + kRows - 1) / kRows, rest = rows - (tiles - 1) * kRows;
  const int64_t arranged = (depth + kByteDepths - 1) / kByteDepths * kByteDepths, bytes = arranged * kByteStreams;
  const auto rows_of = [&](int64_t tile) { return tile == tiles - 1 && rest <= kHalf ? kHalf : kRows; };
  const auto first_of = [&](int64_t tile) { return std::min(tile * kRows, rows - rows_of(tile)); };
  const Scratch<uint8_t> streams(tiles * bytes);
  parallel_for(0, tiles, 1 + kInt8TaskBytes / bytes, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int8_t* from[kByteStreams];
      const int here = rows_of(tile);
      for (int r = 0; r < here; ++r)
        for (int q = 0; q < kPlanes; ++q) from[r * kPlanes + q] = split.plane(q) + (first_of(tile) + r) * depth;
      machine.arrange(from, here * kPlanes, depth, false, streams.data() + tile * bytes);
    }
  });
  const int64_t blocks = (columns + kByteColumns - 1) / kByteColumns;
  parallel_for(0, blocks, 1 + kInt8TaskBytes / bytes, [&](int64_t begin, int64_t end) {
    const Scratch<uint8_t> block_weights(bytes);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t column = block * kByteColumns, count = std::min<int64_t>(kByteColumns, columns - column);
      const int8_t* from[kByteColumns];
      for (int64_t j = 0; j < count; ++j) from[j] = p.weights + (column + j) * depth;
      machine.arrange(from, static_cast<int>(count), depth, true, block_weights.data());
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t first = first_of(tile), here = rows_of(tile);
        float sums[byte_rows(2) * kByteColumns];  // 2 planes: the most rows
        ByteTile given{block_weights.data(),
                       reinterpret_cast<const int8_t*>(streams.data() + tile * bytes),
                       arranged,
                       kInt8Group,
                       groups,
                       &split.steps[first * groups],
                       {},
                       sums};
        for (int q = 0; q < kPlanes; ++q) given.plane_sums[q] = split.sums(q) + first * groups;
        (here == kHalf ? machine.half : machine.tile)[kPlanes - 2](given);
        for (int64_t r = 0; r < here; ++r) p.store(split, first + r, column, count, sums + r * kByteColumns);
      }
    }
  });
}

template <class T, int kPlanes>
void int8_products(const Int8Product<T>& p) {
  static const ByteWeights* const machine = byte_weights();
  if (!machine) return dot_int8_products<T, kPlanes>(p);
  constexpr int kRows = byte_rows(kPlanes);
  const int64_t at_once = std::max<int64_t>(16, kInt8RowsBytes / (p.depth * kPlanes + 1) / kRows * kRows);
  for (int64_t row = 0; row < p.rows; row += at_once) {
    Int8Product<T> part = p;
    part.rows = std::min(at_once, p.rows - row);
    part.a += row * p.depth;
    part.out += row * p.columns;
    const SplitRows split(part.a, p.dtype, part.rows, p.depth, kInt8Group, kPlanes);
    if (part.rows < kRows)
      byte_rows_products<T, kPlanes>(*machine, part, split);
    else
      byte_tiles_products<T, kPlanes>(*machine, part, split);
  }
}

void int8_weight_mm_kernel(const TensorView& out, const TensorView& self, const TensorView& weights,
                           const TensorView& scales) {
  visit_floating("_weight_int8pack_mm", self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    int8_products<T, sizeof(T) == 2 ? 2 : 3>({out.ptr<T>(), self.ptr<const T>(), self.dtype,
                                              weights.ptr<const int8_t>(), scales.ptr<const T>(), out.sizes[0],
                                              out.sizes[1], self.sizes[1]});
  });
}

MICA_REGISTER_CPU(int8_weight_mm, int8_weight_mm_kernel);

}  // namespace
}  // namespace mica::cpu
