#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/scratch.h"
#include "mica/dtype.h"

namespace mica::cpu {

// The right factor of many products, packed once into the panels of the matrix-product kernels.
template <class T>
class PackedFactor {
 public:
  PackedFactor(int64_t depth, int64_t columns)
      : kernel_(sizeof(T) == 8 ? gemm_impl::micro_kernel_f64() : gemm_impl::micro_kernel_f32()),
        packed_((columns + kernel_.cols - 1) / kernel_.cols * kernel_.cols * depth) {}

  // A matrix of at most as many depths and columns as there is room for; its columns are adjacent or its depths.
  void pack(const T* matrix, int64_t depth, int64_t columns, int64_t depth_stride, int64_t column_stride) {
    depth_ = depth;
    columns_ = columns;
    const gemm_impl::CopyFn copy = gemm_impl::copy_to_sums(dtype_v<T>);
    for (int64_t c = 0; c < columns; c += kernel_.cols)
      copy(matrix + c * column_stride, packed_.data() + c * depth,
           {depth, std::min<int64_t>(kernel_.cols, columns - c), depth_stride, column_stride, kernel_.cols, 1});
  }

  // to = from @ packed, or added to it; rows of both are `from_stride` and `to_stride` apart.
  void multiply(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, bool add) const {
    gemm_impl::MicroTile tile{};
    tile.a_row_stride = from_stride;
    tile.a_k_stride = 1;
    tile.b_k_stride = kernel_.cols;
    tile.c_row_stride = to_stride;
    tile.k = depth_;
    tile.b_padded = true;
    tile.store = add ? gemm_impl::Store::Accumulate : gemm_impl::Store::Overwrite;
    for (int64_t c = 0; c < columns_; c += kernel_.cols) {
      tile.b = packed_.data() + c * depth_;
      tile.cols = static_cast<int>(std::min<int64_t>(kernel_.cols, columns_ - c));
      for (int64_t r = 0; r < rows; r += kernel_.in_place_rows) {
        tile.rows = static_cast<int>(std::min<int64_t>(kernel_.in_place_rows, rows - r));
        tile.a = from + r * from_stride;
        tile.c = to + r * to_stride + c;
        kernel_.run(tile);
      }
    }
  }

 private:
  const gemm_impl::MicroKernel& kernel_;
  Scratch<T> packed_;
  int64_t depth_ = 0, columns_ = 0;
};

}  // namespace mica::cpu
