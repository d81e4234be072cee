// Products in which one operand is a vector or a few of them. The other one, a matrix, is read once in place. Threads
// share its rows, or its depth where it has few rows.
#include <algorithm>
#include <cstring>

#include "backends/cpu/fetch_ahead.h"
#include "backends/cpu/gemm/product.h"
#include "backends/cpu/gemm/workspace.h"
#include "backends/cpu/share_runs.h"
#include "mica/parallel.h"

namespace mica::cpu::gemm_impl {
namespace {

constexpr int64_t kMaxVectors = 16;
constexpr int64_t kStackSums = 512;
constexpr int64_t kRowsPerThread = 32;
constexpr int64_t kAdjacentRows = 512;
constexpr int64_t kElementsPerThread = 32768;

// The product of two vectors of which neither is dense: both are copied piece by piece.
void run_strided_dot(const Scheme& s, const Product& p, int threads) {
  constexpr int64_t kPiece = 512;
  constexpr int kMostSlices = 64;
  const int slices = static_cast<int>(std::clamp<int64_t>(p.k / kElementsPerThread, 1, std::min(threads, kMostSlices)));
  const int64_t a_stride = p.a.col_stride * s.element_size, b_stride = p.b.row_stride * s.element_size;
  const bool far = gathers_from_far(p.k, a_stride) && gathers_from_far(p.k, b_stride);
  alignas(64) char sums[kMostSlices * 8];
  parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slice = begin; slice < end; ++slice) {
      alignas(64) char a[kPiece * 8], b[kPiece * 8], pair[16] = {};
      const int64_t last = p.k * (slice + 1) / slices;
      for (int64_t k = p.k * slice / slices; k < last; k += kPiece) {
        const int64_t count = std::min(kPiece, last - k);
        const auto copy = [&](int64_t j, int64_t n) {
          s.copy(p.a_at(s, 0, k + j), a + j * s.sum_size, {1, n, n, p.a.col_stride, n, 1});
          s.copy(p.b_at(s, k + j, 0), b + j * s.sum_size, {1, n, n, p.b.row_stride, n, 1});
        };
        if (far) {
          gather_fetched(count, s.element_size, copy, GatherSource{p.a_at(s, 0, k), a_stride},
                         GatherSource{p.b_at(s, k, 0), b_stride});
        } else {
          copy(0, count);
        }
        s.gemv(a, b, pair + s.sum_size, {1, count, 1, count, 1, count, 1});
        add_slices(s, pair, 1, 2);
      }
      std::memcpy(sums + slice * s.sum_size, pair, static_cast<size_t>(s.sum_size));
    }
  });
  add_slices(s, sums, 1, slices);
  s.finish(sums, p.c, {1, 1, 1, p.c_row_stride, p.c_col_stride}, p.epilogue);
}

}  // namespace

bool run_vector(const Scheme& s, const Product& p, int threads) {
  if (!s.gemv) return false;
  if (p.m == 1 && p.n == 1 && p.a.col_stride != 1 && p.b.row_stride != 1 && s.sums_are_elements) {
    run_strided_dot(s, p, threads);
    return true;
  }
  const int64_t most = is_floating(s.dtype) ? kMaxVectors : 1;
  // The operand with more rows is the matrix: each of its rows gives one element for each vector of the other operand.
  const bool a_is_matrix = p.n < p.m || (p.n == p.m && p.a.col_stride == 1);
  const GemmOperand& matrix = a_is_matrix ? p.a : p.b;
  const GemmOperand& vectors = a_is_matrix ? p.b : p.a;
  GemvShape shape;
  shape.rows = a_is_matrix ? p.m : p.n;
  shape.vectors = a_is_matrix ? p.n : p.m;
  shape.k = p.k;
  shape.row_stride = a_is_matrix ? matrix.row_stride : matrix.col_stride;
  shape.k_stride = a_is_matrix ? matrix.col_stride : matrix.row_stride;
  if (shape.vectors > most || (shape.k_stride != 1 && shape.row_stride != 1)) return false;
  if (a_is_matrix && p.n > 1 && p.epilogue.bias) return false;  // the sums are transposed, the bias is not
  shape.x_stride = a_is_matrix ? vectors.col_stride : vectors.row_stride;
  const int64_t x_k_stride = a_is_matrix ? vectors.row_stride : vectors.col_stride;
  const bool x_in_place = s.sums_are_elements && x_k_stride == 1;
  const int64_t x_source_stride = shape.x_stride;
  if (!x_in_place) shape.x_stride = shape.k;

  // The least depth that is worth a thread of its own.
  const int64_t depth = shape.rows > kElementsPerThread ? 1 : (kElementsPerThread + shape.rows - 1) / shape.rows;
  threads = static_cast<int>(std::clamp<int64_t>(shape.k / depth, 1, threads));
  const bool by_rows = shape.rows >= threads * kRowsPerThread;
  const int slices = by_rows ? 1 : threads;
  const int64_t x_elements = x_in_place ? 0 : shape.k * shape.vectors;
  // Sums are made in C itself where they have its layout.
  const int64_t c_stride = a_is_matrix ? p.c_row_stride : p.c_col_stride;
  const bool direct_c = p.plain && s.sums_are_elements && slices == 1 && c_stride == 1;
  shape.y_stride = direct_c ? (a_is_matrix ? p.c_col_stride : p.c_row_stride) : shape.rows;
  const int64_t count = direct_c ? 0 : shape.rows * shape.vectors;

  const auto run = [&](char* y, char* x_copy) {
    const char* x = static_cast<const char*>(vectors.data);
    if (!x_in_place) {
      s.copy(x, x_copy, {shape.vectors, shape.k, x_source_stride, x_k_stride, shape.k, 1});
      x = x_copy;
    }
    const char* data = static_cast<const char*>(matrix.data);
    if (threads == 1) {
      s.gemv(data, x, y, shape);
    } else if (by_rows) {
      const int64_t blocks = (shape.rows + kRowsPerThread - 1) / kRowsPerThread;
      const int64_t least =
          shape.k_stride == 1 ? 1 : kAdjacentRows / kRowsPerThread;  // so that a thread reads long runs of memory
      share_runs(threads, blocks, least, blocks, [&](int64_t begin, int64_t end) {
        const int64_t first = begin * kRowsPerThread;
        GemvShape part = shape;
        part.rows = std::min(shape.rows, end * kRowsPerThread) - first;
        s.gemv(data + first * shape.row_stride * s.element_size, x, y + first * s.sum_size, part);
      });
    } else {
      parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
        for (int64_t slice = begin; slice < end; ++slice) {
          const int64_t first = shape.k * slice / slices;
          GemvShape part = shape;
          part.k = shape.k * (slice + 1) / slices - first;
          s.gemv(data + first * shape.k_stride * s.element_size, x + first * s.sum_size, y + slice * count * s.sum_size,
                 part);
        }
      });
      add_slices(s, y, count, slices);
    }
    if (direct_c) return;
    if (!a_is_matrix) {
      s.finish(y, p.c, {p.m, p.n, p.n, p.c_row_stride, p.c_col_stride}, p.epilogue);
    } else if (p.n == 1) {
      s.finish(y, p.c, {p.m, 1, 1, p.c_row_stride, 1}, p.epilogue);
    } else {
      s.finish(y, p.c, {p.n, p.m, p.m, p.c_col_stride, p.c_row_stride}, p.epilogue);
    }
  };
  if (x_elements <= kStackSums && count * slices <= kStackSums) {
    alignas(64) char stack[2 * kStackSums * 8];
    run(direct_c ? p.c : stack, stack + kStackSums * 8);
  } else {
    const int64_t y_bytes = (count * slices * s.sum_size + 63) / 64 * 64;
    const WorkBuffer buffer(Slot::Panels, static_cast<size_t>(y_bytes + x_elements * s.sum_size));
    run(direct_c ? p.c : buffer.data(), buffer.data() + y_bytes);
  }
  return true;
}

}  // namespace mica::cpu::gemm_impl
