// One large real matrix, factored on the pool: panels by LAPACK in one thread, what remains by this library's products.
// The threads of OpenBLAS wait for each other by spinning, beside a pool whose threads spin too; so they stay out of
// it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/linalg/lapack.h"
#include "mica/parallel.h"

namespace mica::cpu {

constexpr int64_t kSharedPanel = 64;  // columns of a panel
constexpr int64_t kLeastShared = 256;

// Whether one matrix is worth the pool's threads: below, they gain less than the cut into panels costs.
inline bool worth_sharing(int64_t count, int64_t rows, int64_t columns) {
  return count == 1 && std::min(rows, columns) >= kLeastShared && get_num_threads() > 1 && !in_parallel_region();
}

// C -= A B for parts of column-major matrices. Each part is given by its first element and the strides between rows and
// columns of the factors, so that a factor may be a transpose.
template <class T>
void subtract_product(T* c, int64_t lead, int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_row,
                      int64_t a_column, const T* b, int64_t b_row, int64_t b_column) {
  GemmCall call;  // of the transposes, whose rows are contiguous
  call.dtype = dtype_v<T>;
  call.m = columns;
  call.n = rows;
  call.k = depth;
  call.a = {b, b_column, b_row};
  call.b = {a, a_column, a_row};
  call.c = c;
  call.c_row_stride = lead;
  call.c_col_stride = 1;
  call.alpha = -1;
  call.beta = 1;
  gemm(call);
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
    // The triangle that remains, a few columns at a time.
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

// A = P L U in place, as getrf leaves it: pivots from 1, and 0 or the first zero on U's diagonal.
template <class T>
lapack::Integer shared_lu(T* a, int64_t m, int64_t n, lapack::Integer* pivots) {
  using lapack::Integer;
  using lapack::Routine;
  const Integer lead = static_cast<Integer>(m);
  const int64_t steps = std::min(m, n);
  Integer first_zero = 0;
  for (int64_t k = 0; k < steps; k += kSharedPanel) {
    const int64_t width = std::min(kSharedPanel, steps - k), from = k + width;
    const Integer rows = static_cast<Integer>(m - k), columns = static_cast<Integer>(width);
    Integer info = 0;
    lapack::call<T>(Routine::getrf, &rows, &columns, a + k * m + k, &lead, pivots + k, &info);
    if (info > 0 && first_zero == 0) first_zero = static_cast<Integer>(k) + info;
    for (int64_t i = k; i < from; ++i) {
      // A panel of NaN has no largest element, and the library may name none.
      const bool named = pivots[i] >= 1 && pivots[i] <= rows;
      pivots[i] = named ? pivots[i] + static_cast<Integer>(k) : static_cast<Integer>(i + 1);
    }
    // Columns beside the panel, those on its left first: what a thread does with its columns concerns no other.
    parallel_for(0, n - width, 32, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        T* const column = a + (c < k ? c : c + width) * m;
        for (int64_t i = k; i < from; ++i) std::swap(column[i], column[pivots[i] - 1]);
      }
      const int64_t right = std::max(begin, k) + width, count = end + width - right;
      if (count <= 0) return;
      const char side = 'L', triangle = 'L', form = 'N', ones = 'U';
      const Integer order = columns, sides = static_cast<Integer>(count);
      const T one = 1;
      T* const above = a + right * m + k;
      lapack::call<T>(Routine::trsm, &side, &triangle, &form, &ones, &order, &sides, &one, a + k * m + k, &lead, above,
                      &lead);
      if (from < m) subtract_product(above + width, m, m - from, count, width, a + k * m + from, 1, m, above, 1, m);
    });
  }
  return first_zero;
}

// The inverse from shared_lu's factors: the columns of the identity, solved for by all threads.
template <class T>
void shared_inverse(T* a, int64_t n, const lapack::Integer* pivots) {
  using lapack::Integer;
  const Integer order = static_cast<Integer>(n);
  std::vector<T> inverse(static_cast<size_t>(n * n), T(0));
  parallel_for(0, n, 32, [&](int64_t begin, int64_t end) {
    const char form = 'N';
    const Integer columns = static_cast<Integer>(end - begin);
    Integer info = 0;
    for (int64_t c = begin; c < end; ++c) inverse[static_cast<size_t>(c * n + c)] = 1;
    lapack::call<T>(lapack::Routine::getrs, &form, &order, &columns, a, &order, pivots, inverse.data() + begin * n,
                    &order, &info);
  });
  std::copy(inverse.begin(), inverse.end(), a);
}

}  // namespace mica::cpu
