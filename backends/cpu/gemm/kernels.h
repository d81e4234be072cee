// The building blocks of a matrix product, chosen once per dtype and CPU, behind function pointers.
#pragma once

#include <cstdint>

#include "mica/dtype.h"

namespace mica::cpu::gemm_impl {

// How sums reach memory. General: C = alpha * sums + beta * C + bias, where beta == 0 does not read C.
enum class Store : uint8_t { Overwrite, Accumulate, General };

// The factors and the bias of General, in the type of the sums.
struct Epilogue {
  alignas(16) char alpha[16];
  alignas(16) char beta[16];
  bool reads_c;
  const void* bias;  // the bias of the first column that is computed, or null
};

// One tile: c[rows x cols] from a[rows x k] and b[k x cols]. Strides are in elements. Columns of b and c are adjacent.
struct MicroTile {
  const void* a;
  int64_t a_row_stride, a_k_stride;
  const void* b;
  int64_t b_k_stride;
  void* c;
  int64_t c_row_stride;
  int64_t k;
  int rows, cols;
  Store store;
  const Epilogue* epilogue;      // for Store::General, its bias already at the tile's first column
  const void* next_b = nullptr;  // where the next tile's b begins; null: right behind this panel, or at the same b
  const char* soon = nullptr;    // memory that later tiles read, to be fetched: `soon_step` bytes with every depth
  int64_t soon_step = 0;
  bool c_near = false;                      // whether c is in the first cache
  bool a_padded = false, b_padded = false;  // whether whole vectors may be read where rows or columns end
  bool turned = false;     // rows of c are adjacent, and c_row_stride is from column to column; only to overwrite c
  bool as_column = false;  // of a turned tile of one row: it is summed in the order in which a column by itself is
};

// A micro-kernel takes any tile up to rows x cols. The other members say what suits the processor: the order in which
// panels of A are read, and the sizes that keep panels in the first cache and a block in the second.
struct MicroKernel {
  int rows, cols;
  void (*run)(const MicroTile&);
  int in_place_rows;         // the best number of rows of a tile where depths of A are adjacent
  bool packs_rows_adjacent;  // whether panels of A have adjacent rows; else adjacent depths, unless A has adjacent rows
  int64_t panel_depth_bytes;
  int64_t block_bytes;
  int64_t near_row_bytes;  // rows of B that are at most so far apart are used in place, with at most
  int64_t near_rows = 1 << 30, near_bytes = int64_t{1} << 40;  // so many rows of A, and so many bytes of B
  int64_t fetch_depths = 1;   // a line of `MicroTile::soon` is fetched with every so many depths
  bool packs_blocks = false;  // a thread packs the block of B that it is about to use; else all of B is packed first
  bool turns = false;         // whether it is fast with `MicroTile::turned`
};

const MicroKernel& micro_kernel_f32();
const MicroKernel& micro_kernel_f64();
const MicroKernel& micro_kernel_i32();
const MicroKernel& micro_kernel_i64();

// dst[i * dst_row_stride + j * dst_col_stride] = src[i * src_row_stride + j * src_col_stride], converted to the type of
// the sums.
struct CopyShape {
  int64_t rows, cols;
  int64_t src_row_stride, src_col_stride;
  int64_t dst_row_stride, dst_col_stride;
};
using CopyFn = void (*)(const void* src, void* dst, const CopyShape& shape);

// Rounds a block of sums (rows of `sums_stride`) to C's dtype with Store::General.
struct FinishShape {
  int64_t rows, cols;
  int64_t sums_stride;
  int64_t c_row_stride, c_col_stride;
};
using FinishFn = void (*)(const void* sums, void* c, const FinishShape& shape, const Epilogue& epilogue);

// The product of a matrix with a few vectors: y[v * y_stride + i] = sum over k of matrix[i, k] * x[v * x_stride + k], x
// and y in the type of the sums.
struct GemvShape {
  int64_t rows, k, vectors;
  int64_t row_stride, k_stride;  // of the matrix; one of them is 1
  int64_t x_stride, y_stride;
};
using GemvFn = void (*)(const void* matrix, const void* x, void* y, const GemvShape& shape);

// Copy to the type in which `dtype` is summed (float16 -> float32, int8 -> int32, ...; complex as pairs of reals).
CopyFn copy_to_sums(DType dtype);
FinishFn finish_from_sums(DType dtype);
GemvFn gemv_kernel(DType dtype);

}  // namespace mica::cpu::gemm_impl
