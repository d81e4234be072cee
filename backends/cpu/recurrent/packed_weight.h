// A weight that is multiplied at every time step, packed once into the panels of the matrix-product kernels.
#pragma once

#include <algorithm>

#include "backends/cpu/gemm/kernels.h"
#include "core/kept.h"
#include "mica/dtype.h"

namespace mica::cpu {

template <class T>
const gemm_impl::MicroKernel& recurrent_micro_kernel() {
  if constexpr (sizeof(T) == 8) {
    return gemm_impl::micro_kernel_f64();
  } else {
    return gemm_impl::micro_kernel_f32();
  }
}

// Columns come in groups of `units` (one group per gate); a panel never spans two groups.
template <class T>
class PackedWeight {
 public:
  // The matrix is depth x (groups * units), seen through its strides.
  PackedWeight(const T* matrix, int64_t depth, int64_t groups, int64_t units, int64_t depth_stride,
               int64_t column_stride)
      : kernel_(recurrent_micro_kernel<T>()),
        depth_(depth),
        groups_(groups),
        units_(units),
        width_(kernel_.cols),
        panels_((units + width_ - 1) / width_),
        packed_({matrix,
                 kept::Key::Kind::RecurrentPanels,
                 {depth, groups, units, depth_stride, column_stride, static_cast<int64_t>(sizeof(T))}},
                static_cast<size_t>(groups * panels_ * depth * width_) * sizeof(T)) {
    if (packed_.is_filled()) return;
    const gemm_impl::CopyFn copy = gemm_impl::copy_to_sums(dtype_v<T>);
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t p = 0; p < panels_; ++p) {
        const int64_t columns = std::min(width_, units - p * width_);
        copy(matrix + (g * units + p * width_) * column_stride, panel(g, p),
             {depth, columns, depth_stride, column_stride, width_, 1});
      }
    }
    packed_.set_filled();
  }

  int64_t width() const { return width_; }
  int64_t panels() const { return panels_; }  // per group
  int64_t begin_of(int64_t p) const { return p * width_; }
  int64_t end_of(int64_t p) const { return std::min(units_, (p + 1) * width_); }
  // The fewest panels that are worth a thread of their own.
  int64_t grain(int64_t rows) const {
    constexpr int64_t kMultiplications = 1 << 16;
    return std::max<int64_t>(1, kMultiplications / std::max<int64_t>(1, rows * depth_ * groups_ * width_));
  }

  // to[rows, columns of panel p of every group] = or += from @ weight.
  void multiply(int64_t p, const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
                bool accumulate) const {
    gemm_impl::MicroTile tile{};
    tile.a_row_stride = from_stride;
    tile.a_k_stride = 1;
    tile.b_k_stride = width_;
    tile.c_row_stride = to_stride;
    tile.k = depth_;
    tile.b_padded = true;
    tile.cols = static_cast<int>(end_of(p) - begin_of(p));
    tile.store = accumulate ? gemm_impl::Store::Accumulate : gemm_impl::Store::Overwrite;
    for (int64_t g = 0; g < groups_; ++g) {
      tile.b = panel(g, p);
      for (int64_t r = 0; r < rows; r += kernel_.in_place_rows) {
        tile.rows = static_cast<int>(std::min<int64_t>(kernel_.in_place_rows, rows - r));
        tile.a = from + r * from_stride;
        tile.c = to + r * to_stride + g * units_ + begin_of(p);
        kernel_.run(tile);
      }
    }
  }

 private:
  // In the order of their use: a step reads the weight as one run, of which nothing is lost that is fetched ahead.
  T* panel(int64_t g, int64_t p) const { return packed_.template as<T>() + (p * groups_ + g) * depth_ * width_; }

  const gemm_impl::MicroKernel& kernel_;
  int64_t depth_, groups_, units_, width_, panels_;
  kept::Memory packed_;
};

}  // namespace mica::cpu
