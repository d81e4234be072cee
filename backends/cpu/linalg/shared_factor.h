// Factors one large real matrix on the pool: panels in one thread, the rest by this library's products. The threads of
// OpenBLAS are not used: they wait for each other by spinning, beside a pool whose threads spin too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/linalg/lapack.h"
#include "backends/cpu/linalg/panels.h"
#include "backends/cpu/scratch.h"
#include "mica/parallel.h"

namespace mica::cpu {

constexpr int64_t kSharedPanel = 64;  // columns of a panel
constexpr int64_t kLeastShared = 256;

// Whether one matrix is worth being cut into panels, for one thread or for many.
inline bool worth_sharing(int64_t count, int64_t rows, int64_t columns) {
  return count == 1 && std::min(rows, columns) >= kLeastShared && !in_parallel_region();
}

// Whether a matrix is worth that where other matrices occupy the other threads.
inline bool worth_own_code(int64_t rows, int64_t columns) { return std::min(rows, columns) >= 48; }

// C = alpha A B + beta C for parts of column-major matrices. Each part is given by its first element and the strides
// between rows and columns of the factors, so that a factor may be a transpose.
template <class T>
void part_product(T* c, int64_t lead, int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_row,
                  int64_t a_column, const T* b, int64_t b_row, int64_t b_column, int alpha, int beta) {
  if (rows == 0 || columns == 0) return;
  GemmCall call;  // of the transposed matrices, whose rows are contiguous
  call.dtype = dtype_v<T>;
  call.m = columns;
  call.n = rows;
  call.k = depth;
  call.a = {b, b_column, b_row};
  call.b = {a, a_column, a_row};
  call.c = c;
  call.c_row_stride = lead;
  call.c_col_stride = 1;
  call.alpha = alpha;
  call.beta = beta;
  gemm(call);
}
template <class T>
void subtract_product(T* c, int64_t lead, int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_row,
                      int64_t a_column, const T* b, int64_t b_row, int64_t b_column) {
  part_product(c, lead, rows, columns, depth, a, a_row, a_column, b, b_row, b_column, -1, 1);
}

// X = F X, F square and dense, X of `columns` columns; `room` holds as many elements as X.
template <class T>
void multiply_from_left(const T* f, int64_t n, T* x, int64_t lead, int64_t columns, T* room) {
  for (int64_t c = 0; c < columns; ++c) std::copy(x + c * lead, x + c * lead + n, room + c * n);
  part_product(x, lead, n, columns, n, f, 1, n, room, 1, n, 1, 0);
}

// A = L L^T or U^T U in place; returns what potrf does: 0, or the order of the first minor that is not positive.
template <class T>
lapack::Integer shared_cholesky(T* a, int64_t n, bool upper) {
  using lapack::Integer;
  using lapack::Routine;
  const Integer lead = static_cast<Integer>(n);
  const char triangle = upper ? 'U' : 'L', side = upper ? 'L' : 'R', form = 'T', ones = 'N';
  const T one = 1;
  for (int64_t k = 0; k < n; k += kSharedPanel) {
    const int64_t width = std::min(kSharedPanel, n - k), from = k + width, left = n - from;
    T* const corner = a + k * n + k;
    const Integer order = static_cast<Integer>(width);
    Integer info = 0;
    lapack::call<T>(Routine::potrf, &triangle, &order, corner, &lead, &info);
    if (info != 0) return static_cast<Integer>(k) + info;
    if (left == 0) break;
    // Element (r, p) of the panel beside the corner, r counted from `from`; of its transpose where `upper`.
    T* const panel = upper ? a + from * n + k : a + k * n + from;
    const int64_t along = upper ? n : 1, across = upper ? 1 : n;
    parallel_for(0, left, 64, [&](int64_t begin, int64_t end) {
      const Integer rows = upper ? order : static_cast<Integer>(end - begin);
      const Integer columns = upper ? static_cast<Integer>(end - begin) : order;
      lapack::call<T>(Routine::trsm, &side, &triangle, &form, &ones, &rows, &columns, &one, corner, &lead,
                      panel + begin * along, &lead);
    });
    // The remaining triangle, a few columns at a time.
    constexpr int64_t kColumns = 256;
    for (int64_t j = 0; j < left; j += kColumns) {
      const int64_t columns = std::min(kColumns, left - j);
      const int64_t first = upper ? 0 : j, rows = upper ? j + columns : left - j;
      subtract_product(a + (from + j) * n + from + first, n, rows, columns, width, panel + first * along, along, across,
                       panel + j * along, across, along);
    }
  }
  return 0;
}

// Computes the inverse from the factors of shared_lu.h: all threads solve for the columns of the identity, then columns
// are exchanged.
template <class T>
void shared_inverse(T* a, int64_t n, const lapack::Integer* pivots) {
  constexpr int64_t kBlock = kSharedPanel;
  const int64_t blocks = (n + kBlock - 1) / kBlock, size = kBlock * kBlock;
  const Scratch<T> inverse(n * n), corners(2 * blocks * size);
  parallel_for(0, 2 * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t k = t / 2 * kBlock;
      panels::invert_triangle(a + k * n + k, n, std::min(kBlock, n - k), t % 2 == 1, t % 2 == 0,
                              corners.data() + t * size);
    }
  });
  const auto solve = [&](int64_t first, int64_t last) {  // columns
    if (first >= last) return;
    const int64_t columns = last - first;
    T* const x = inverse.data() + first * n;
    const Scratch<T> room(kBlock * columns);
    std::fill(x, x + columns * n, T(0));
    for (int64_t c = 0; c < columns; ++c) x[c * n + first + c] = 1;
    for (int64_t k = first / kBlock * kBlock; k < n; k += kBlock) {  // zeros above
      const int64_t width = std::min(kBlock, n - k), from = k + width;
      multiply_from_left(corners.data() + 2 * (k / kBlock) * size, width, x + k, n, columns, room.data());
      subtract_product(x + from, n, n - from, columns, width, a + k * n + from, 1, n, x + k, 1, n);
    }
    for (int64_t k = (blocks - 1) * kBlock; k >= 0; k -= kBlock) {
      const int64_t width = std::min(kBlock, n - k);
      multiply_from_left(corners.data() + (2 * (k / kBlock) + 1) * size, width, x + k, n, columns, room.data());
      subtract_product(x, n, k, columns, width, a + k * n, 1, n, x + k, 1, n);
    }
  };
  // Later columns have less work, so each task takes some from both ends.
  const int64_t tasks = get_num_threads(), share = (n + 2 * tasks - 1) / (2 * tasks);
  parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      solve(t * share, std::min(n, (t + 1) * share));
      solve((2 * tasks - 1 - t) * share, std::min(n, (2 * tasks - t) * share));
    }
  });
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  for (int64_t i = n - 1; i >= 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(pivots[i] - 1)]);
  parallel_for(0, n, 64, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const T* const from = inverse.data() + order[static_cast<size_t>(c)] * n;
      std::copy(from, from + n, a + c * n);
    }
  });
}

}  // namespace mica::cpu
