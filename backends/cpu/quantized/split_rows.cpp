// Rows of activations as planes of 8-bit integers.
#include "backends/cpu/quantized/split_rows.h"

#include <algorithm>
#include <bit>

#include "backends/cpu/gemm/kernels.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr float kGreatestNumber = 127;
constexpr float kRounder = 12582912;  // 1.5 * 2^23: adding it rounds to an integer
constexpr int32_t kRounderBits = 0x4b400000;

struct Group {
  float step = 0;
  bool has_step = true;
  int32_t sums[kMostPlanes] = {};
};

// The numbers of one group. The loops are plain, so that compilers vectorise them.
template <int kPlanes>
Group split_group(const float* from, int64_t count, int8_t* to, int64_t plane_size) {
  Group group;
  int32_t greatest_bits = 0;  // floats without a sign are ordered as integers
  for (int64_t i = 0; i < count; ++i)
    greatest_bits = std::max(greatest_bits, std::bit_cast<int32_t>(from[i]) & 0x7fffffff);
  if (greatest_bits == 0) {
    for (int p = 0; p < kPlanes; ++p) std::fill_n(to + p * plane_size, count, int8_t{0});
    return group;
  }
  const float greatest = std::bit_cast<float>(greatest_bits);
  const float per_step = kGreatestNumber / greatest;
  group.has_step = greatest_bits < 0x7f800000 && per_step < 1e38f;
  group.step = greatest / kGreatestNumber;
  for (int p = 1; p < kPlanes; ++p) group.step /= kPlaneBase;
  int32_t sums[3] = {};
  for (int64_t i = 0; i < count; ++i) {
    float rest = from[i] * per_step;
#pragma GCC unroll 3
    for (int p = 0; p < kPlanes; ++p) {
      const float rounded = rest + kRounder;
      const int32_t number = std::bit_cast<int32_t>(rounded) - kRounderBits;
      to[p * plane_size + i] = static_cast<int8_t>(number);
      sums[p] += number;
      rest = (rest - (rounded - kRounder)) * kPlaneBase;
    }
  }
  for (int p = 0; p < kPlanes; ++p) group.sums[p] = sums[p];
  return group;
}

}  // namespace

SplitRows::SplitRows(const void* from, DType dtype, int64_t rows, int64_t depth, int64_t group, int planes)
    : rows(rows),
      depth(depth),
      groups((depth + group - 1) / group),
      plane_size(rows * depth + 64),
      numbers(planes * plane_size),
      steps(rows * groups),
      group_sums(rows * groups),
      plane_sums(planes * rows * groups),
      has_steps(rows) {
  const gemm_impl::CopyFn convert = dtype == DType::Float32 ? nullptr : gemm_impl::copy_to_sums(dtype);
  parallel_for(0, rows, 1 + 32768 / (depth + 1), [&](int64_t begin, int64_t end) {
    const Scratch<float> converted(convert ? depth : 0);
    for (int64_t r = begin; r < end; ++r) {
      const char* row = static_cast<const char*>(from) + r * depth * element_size(dtype);
      const float* floats = convert ? converted.data() : reinterpret_cast<const float*>(row);
      if (convert) convert(row, converted.data(), {1, depth, depth, 1, depth, 1});
      has_steps[r] = true;
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t first = g * group, count = std::min(group, depth - first), at = r * groups + g;
        int8_t* to = numbers.data() + r * depth + first;
        const Group split = planes == 1   ? split_group<1>(floats + first, count, to, plane_size)
                            : planes == 2 ? split_group<2>(floats + first, count, to, plane_size)
                                          : split_group<3>(floats + first, count, to, plane_size);
        has_steps[r] = has_steps[r] && split.has_step;
        steps[at] = split.step;
        double sum = 0;
        for (int p = 0; p < planes; ++p) {
          plane_sums[p * rows * groups + at] = split.sums[p];
          sum = sum * kPlaneBase + split.sums[p];
        }
        group_sums[at] = static_cast<float>(sum * split.step);
      }
    }
  });
}

}  // namespace mica::cpu
