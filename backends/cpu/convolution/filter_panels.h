// The matrix of filters as products with positions as rows read it: panels of filters, which compiled calls keep.
#pragma once

#include <algorithm>

#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/gemm/kernels.h"
#include "core/kept.h"

namespace mica::cpu::convolution {

// The filters of a panel side by side, one depth after the other. The matrix has a row for each filter.
class FilterPanels {
 public:
  FilterPanels(const float* matrix, int64_t rows, int64_t depth, int64_t row_stride, int64_t depth_stride,
               int64_t width)
      : depth_(depth),
        width_(width),
        memory_(key(matrix, rows, depth, row_stride, depth_stride), bytes(rows, depth, width)) {
    if (memory_.is_filled()) return;
    parallel_for(0, divide_up(rows, width), divide_up(kCopyGrain, width * depth), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i * width;
        gemm_impl::copy_to_sums(DType::Float32)(
            matrix + row * row_stride, memory_.as<float>() + row * depth,
            {std::min(width, rows - row), depth, row_stride, depth_stride, 1, width});
      }
    });
    memory_.set_filled();
  }
  const float* panel(int64_t i) const { return memory_.as<float>() + i * width_ * depth_; }
  static bool may_keep(const float* matrix, int64_t rows, int64_t depth, int64_t row_stride, int64_t depth_stride,
                       int64_t width) {
    return kept::may_keep(key(matrix, rows, depth, row_stride, depth_stride), bytes(rows, depth, width));
  }

 private:
  static constexpr int64_t kCopyGrain = 1 << 14;
  // They are the panels of a product whose columns are the filters.
  static kept::Key key(const float* matrix, int64_t rows, int64_t depth, int64_t row_stride, int64_t depth_stride) {
    return {matrix,
            kept::Key::Kind::ProductPanels,
            {static_cast<int64_t>(DType::Float32), rows, depth, depth_stride, row_stride, depth, depth}};
  }
  static size_t bytes(int64_t rows, int64_t depth, int64_t width) {
    return bytes_of_floats(round_up(rows, width) * depth);
  }

  const int64_t depth_, width_;
  kept::Memory memory_;
};

}  // namespace mica::cpu::convolution
