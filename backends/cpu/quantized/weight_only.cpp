// Products of real activations with weights of 8 or 4 bits. The activations of a row become 16-bit integers, one step
// for each group of depths, split into a high and a low byte, so that the products are the machine's dot products of
// bytes; each step is a 32639th of the greatest number of its group. Rows that hold infinities or NaN, which have no
// such step, are multiplied as float32 numbers.
#include <algorithm>
#include <cmath>

#include "backends/cpu/quantized/dot_products.h"
#include "backends/cpu/register.h"
#include "backends/cpu/scratch.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kInt8Group = 512;        // depths that share a step where weights have 8 bits
constexpr float kGreatest = 32639;         // 127 * 256 + 127
constexpr int64_t kBlockBytes = 16;        // of 32 weights of a row
constexpr int64_t kTaskBytes = 64 * 1024;  // of weights that are worth a thread

// The rows of activations as integers.
struct SplitRows {
  SplitRows(const float* from, int64_t rows, int64_t depth, int64_t group)
      : depth(depth),
        groups((depth + group - 1) / group),
        high(rows * depth + 64),
        low(rows * depth + 64),
        steps(rows * groups),
        sums(rows * groups),
        rounded_sums(rows * groups),
        finite(rows) {
    parallel_for(0, rows, 1 + 32768 / (depth + 1), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        finite[r] = true;
        for (int64_t g = 0; g < groups; ++g) split(from, r, g, std::min(group, depth - g * group), group);
      }
    });
  }

  void split(const float* from, int64_t row, int64_t g, int64_t count, int64_t group) {
    const int64_t first = row * depth + g * group, at = row * groups + g;
    float greatest = 0, sum = 0;
    bool is_finite = true;
    for (int64_t i = first; i < first + count; ++i) {
      const float size = std::fabs(from[i]);
      greatest = size > greatest ? size : greatest;
      is_finite = is_finite && size <= 3.4028234e38f;
      sum += from[i];
    }
    finite[row] = finite[row] && is_finite;
    steps[at] = greatest / kGreatest;
    const double per_step = is_finite && greatest > 0 ? static_cast<double>(kGreatest) / greatest : 0;
    int32_t total = 0;
    for (int64_t i = first; i < first + count; ++i) {
      const auto value = static_cast<int32_t>(is_finite ? std::nearbyint(from[i] * per_step) : 0);
      total += value;
      high[i] = static_cast<int8_t>((value + 128) >> 8);
      low[i] = static_cast<int8_t>(value - 256 * high[i]);
    }
    sums[at] = sum;
    rounded_sums[at] = static_cast<float>(total);
  }

  int64_t depth, groups;
  Scratch<int8_t> high, low;
  Scratch<float> steps, sums, rounded_sums;
  Scratch<bool> finite;
};

// out[r, n] = scales[n] * (a[r] . weights[n]).
template <class T>
void int8_products(float* to, const float* a, const int8_t* weights, const T* scales, int64_t rows, int64_t columns,
                   int64_t depth) {
  static const DotProducts& dots = dot_products();
  const SplitRows split(a, rows, depth, kInt8Group);
  const int64_t blocks = (columns + kDotColumns - 1) / kDotColumns;
  parallel_for(0, blocks, 1 + kTaskBytes / (kDotColumns * depth + 1), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t column = block * kDotColumns;
      const int count = static_cast<int>(std::min<int64_t>(kDotColumns, columns - column));
      for (int64_t r = 0; r < rows; ++r) {
        float total[kDotColumns] = {};
        for (int64_t g = 0; split.finite[r] && g < split.groups; ++g) {
          const int64_t k = g * kInt8Group;
          const int8_t *left[2] = {split.high.data() + r * depth + k, split.low.data() + r * depth + k}, *right[4];
          for (int j = 0; j < kDotColumns; ++j) right[j] = weights + (column + std::min(j, count - 1)) * depth + k;
          int32_t sums[2 * kDotColumns];
          dots.tile[1](left, right, std::min(kInt8Group, depth - k), sums);
          const float step = split.steps[r * split.groups + g];
          // The sum of a group has up to 31 bits: it is exact in double.
          for (int j = 0; j < count; ++j)
            total[j] += static_cast<float>(256.0 * sums[j] + sums[kDotColumns + j]) * step;
        }
        for (int j = 0; j < count; ++j) {
          if (!split.finite[r])
            for (int64_t k = 0; k < depth; ++k)
              total[j] += a[r * depth + k] * static_cast<float>(weights[(column + j) * depth + k]);
          to[r * columns + column + j] = total[j] * static_cast<float>(scales[column + j]);
        }
      }
    }
  });
}

// ---- 4 bits: blocks of 4 rows; in them chunks of 32 depths (the last one may be shorter); in them 16 bytes for each
// row, whose lower halves are the first 16 depths.

// a[r] . ((weight - 8) * scale + zero) of row j of a block, one number after the other.
float int4_product(const float* a, const uint8_t* block, int64_t j, int64_t groups, int64_t group, const float* scales,
                   const float* zeros) {
  float total = 0;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < group; ++i) {
      const int64_t k = g * group + i, chunk = k / kInt4Chunk, place = k % kInt4Chunk;
      const uint8_t byte = block[(chunk * kDotColumns + j) * kBlockBytes + place % kBlockBytes];
      const int weight = place < kBlockBytes ? byte & 15 : byte >> 4;
      total += a[k] * (static_cast<float>(weight - 8) * scales[g * kDotColumns + j] + zeros[g * kDotColumns + j]);
    }
  return total;
}

template <class T>
void int4_products(float* to, const float* a, const uint8_t* weights, const T* scales_and_zeros, int64_t rows,
                   int64_t columns, int64_t depth, int64_t group) {
  static const DotProducts& dots = dot_products();
  const SplitRows split(a, rows, depth, group);
  const int64_t groups = depth / group, block_bytes = kDotColumns * (depth / 2);
  parallel_for(0, columns / kDotColumns, 1 + kTaskBytes / (block_bytes + 1), [&](int64_t begin, int64_t end) {
    const Scratch<float> scales(groups * kDotColumns), zeros(groups * kDotColumns);
    for (int64_t block = begin; block < end; ++block) {
      for (int64_t g = 0; g < groups; ++g)
        for (int64_t j = 0; j < kDotColumns; ++j) {
          const T* pair = scales_and_zeros + (g * columns + block * kDotColumns + j) * 2;
          scales[g * kDotColumns + j] = static_cast<float>(pair[0]);
          zeros[g * kDotColumns + j] = static_cast<float>(pair[1]);
        }
      const uint8_t* own = weights + block * block_bytes;
      for (int64_t r = 0; r < rows; ++r) {
        float* result = to + r * columns + block * kDotColumns;
        if (!split.finite[r]) {
          for (int64_t j = 0; j < kDotColumns; ++j)
            result[j] = int4_product(a + r * depth, own, j, groups, group, scales.data(), zeros.data());
          continue;
        }
        const float *steps = split.steps.data() + r * groups, *sums = split.sums.data() + r * groups,
                    *rounded = split.rounded_sums.data() + r * groups;
        dots.int4_rows(own, split.high.data() + r * depth, split.low.data() + r * depth, groups, group / kInt4Chunk,
                       scales.data(), steps, result);
        // The weights were taken for numbers from 0 to 15 without the zero: both are sums over the activations.
        for (int64_t g = 0; g < groups; ++g) {
          const float eight = 8 * rounded[g] * steps[g], sum = sums[g];
          for (int64_t j = 0; j < kDotColumns; ++j)
            result[j] += zeros[g * kDotColumns + j] * sum - scales[g * kDotColumns + j] * eight;
        }
      }
    }
  });
}

// ---- slots

void int8_weight_mm_kernel(const TensorView& out, const TensorView& self, const TensorView& weights,
                           const TensorView& scales) {
  visit_floating("_weight_int8pack_mm", scales.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    int8_products(out.ptr<float>(), self.ptr<const float>(), weights.ptr<const int8_t>(), scales.ptr<const T>(),
                  out.sizes[0], out.sizes[1], self.sizes[1]);
  });
}

void int4_pack_kernel(const TensorView& out, const TensorView& self) {
  const int64_t rows = self.sizes[0], depth = self.sizes[1];
  const auto* from = self.ptr<const int32_t>();
  auto* to = out.ptr<uint8_t>();
  parallel_for(0, rows / kDotColumns, 1 + 32768 / (kDotColumns * depth + 1), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      uint8_t* next = to + block * kDotColumns * (depth / 2);
      for (int64_t k = 0; k < depth; k += kInt4Chunk) {
        const int64_t half = std::min(kInt4Chunk, depth - k) / 2;
        for (int64_t j = 0; j < kDotColumns; ++j) {
          const int32_t* row = from + (block * kDotColumns + j) * depth + k;
          for (int64_t i = 0; i < half; ++i) *next++ = static_cast<uint8_t>((row[i] & 15) | (row[i + half] & 15) << 4);
        }
      }
    }
  });
}

void int4_mm_kernel(const TensorView& out, const TensorView& self, const TensorView& weights,
                    const TensorView& scales_and_zeros, int64_t group) {
  visit_floating("_weight_int4pack_mm_for_cpu", scales_and_zeros.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    int4_products(out.ptr<float>(), self.ptr<const float>(), weights.ptr<const uint8_t>(),
                  scales_and_zeros.ptr<const T>(), out.sizes[0], out.sizes[1], self.sizes[1], group);
  });
}

MICA_REGISTER_CPU(int8_weight_mm, int8_weight_mm_kernel);
MICA_REGISTER_CPU(int4_pack, int4_pack_kernel);
MICA_REGISTER_CPU(int4_mm, int4_mm_kernel);

}  // namespace
}  // namespace mica::cpu
