#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/linalg/panels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/cpu/linalg/panels.h"
#include "backends/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using lapack::Integer;

constexpr int64_t kStrip = 8;  // columns that are factored one by one

// y -= s x
template <class T>
HWY_INLINE void subtract_scaled(T* HWY_RESTRICT y, const T* HWY_RESTRICT x, T s, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, s);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::NegMulAdd(hn::LoadU(d, x + i), factor, hn::LoadU(d, y + i)), d, y + i);
  for (; i < count; ++i) y[i] -= s * x[i];
}

// The place of the first of the largest elements; -1 where none is larger than another, as among NaN.
template <class T>
HWY_INLINE int64_t largest(const T* x, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Set(d, T(-1));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::Abs(hn::LoadU(d, x + i));
    most = hn::IfThenElse(hn::Gt(v, most), v, most);
  }
  T top = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) top = std::abs(x[i]) > top ? std::abs(x[i]) : top;
  if (top < 0) return -1;
  const auto wanted = hn::Set(d, top);
  for (i = 0; i + lanes <= count; i += lanes) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Eq(hn::Abs(hn::LoadU(d, x + i)), wanted));
    if (at >= 0) return i + at;
  }
  for (; i < count; ++i)
    if (std::abs(x[i]) == top) return i;
  return -1;
}

// C -= A B for kVectors vectors of rows, A of `depth` columns, B of `columns` columns.
template <int kVectors, class D, class T>
HWY_INLINE void subtract_rows(D d, T* c, const T* a, const T* b, int64_t lead, int64_t depth, int64_t columns) {
  using V = hn::Vec<D>;
  constexpr int64_t kColumns = 4;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + kColumns <= columns; j += kColumns) {
    V sum[kVectors][kColumns];
    for (int v = 0; v < kVectors; ++v)
      for (int64_t q = 0; q < kColumns; ++q) sum[v][q] = hn::LoadU(d, c + (j + q) * lead + v * lanes);
    for (int64_t p = 0; p < depth; ++p)
      for (int v = 0; v < kVectors; ++v) {
        const V x = hn::LoadU(d, a + p * lead + v * lanes);
        for (int64_t q = 0; q < kColumns; ++q)
          sum[v][q] = hn::NegMulAdd(x, hn::Set(d, b[(j + q) * lead + p]), sum[v][q]);
      }
    for (int v = 0; v < kVectors; ++v)
      for (int64_t q = 0; q < kColumns; ++q) hn::StoreU(sum[v][q], d, c + (j + q) * lead + v * lanes);
  }
  for (; j < columns; ++j)
    for (int v = 0; v < kVectors; ++v) {
      V sum = hn::LoadU(d, c + j * lead + v * lanes);
      for (int64_t p = 0; p < depth; ++p)
        sum = hn::NegMulAdd(hn::LoadU(d, a + p * lead + v * lanes), hn::Set(d, b[j * lead + p]), sum);
      hn::StoreU(sum, d, c + j * lead + v * lanes);
    }
}

// The same for any number of rows: the remaining rows use vectors of half the size, down to one element.
template <int kLanes, class T>
HWY_INLINE void subtract_rest(T* c, const T* a, const T* b, int64_t lead, int64_t rows, int64_t depth,
                              int64_t columns) {
  const hn::CappedTag<T, kLanes> d;
  int64_t i = 0;
  for (; i + kLanes <= rows; i += kLanes) subtract_rows<1>(d, c + i, a + i, b, lead, depth, columns);
  if constexpr (kLanes > 1) {
    if (i < rows) subtract_rest<kLanes / 2>(c + i, a + i, b, lead, rows - i, depth, columns);
  }
}

template <class T>
void subtract_product(T* c, const T* a, const T* b, int64_t lead, int64_t rows, int64_t depth, int64_t columns) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  int64_t i = 0;
  for (; i + 2 * kLanes <= rows; i += 2 * kLanes) subtract_rows<2>(d, c + i, a + i, b, lead, depth, columns);
  subtract_rest<kLanes>(c + i, a + i, b, lead, rows - i, depth, columns);
}

// Columns = L^-1 columns for the unit lower triangle of a strip. The compiler knows the size of a whole strip, and
// interleaves the steps of one column with those of the next.
template <class T>
void solve_strip(const T* l, int64_t lead, int64_t size, T* x, int64_t columns) {
  if (size < kStrip) {
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t j = 0; j < size; ++j)
        for (int64_t i = j + 1; i < size; ++i) x[c * lead + i] -= l[j * lead + i] * x[c * lead + j];
    return;
  }
  T triangle[kStrip * kStrip];
  for (int64_t j = 0; j < kStrip; ++j)
    for (int64_t i = 0; i < kStrip; ++i) triangle[j * kStrip + i] = l[j * lead + i];
  for (int64_t c = 0; c < columns; ++c) {
    T* const column = x + c * lead;
    T solved[kStrip];
#pragma GCC unroll 8
    for (int64_t i = 0; i < kStrip; ++i) solved[i] = column[i];
#pragma GCC unroll 8
    for (int64_t j = 0; j < kStrip; ++j)
#pragma GCC unroll 8
      for (int64_t i = j + 1; i < kStrip; ++i) solved[i] -= triangle[j * kStrip + i] * solved[j];
#pragma GCC unroll 8
    for (int64_t i = 0; i < kStrip; ++i) column[i] = solved[i];
  }
}

// The same for the upper triangle of a strip, with its diagonal.
template <class T>
void solve_upper_strip(const T* u, int64_t lead, int64_t size, T* x, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t j = size - 1; j >= 0; --j) {
      const T solved = x[c * lead + j] /= u[j * lead + j];
      for (int64_t i = 0; i < j; ++i) x[c * lead + i] -= u[j * lead + i] * solved;
    }
}

template <class T>
void solve_factored(const T* lu, int64_t n, T* x, int64_t columns) {
  for (int64_t start = 0; start < n; start += kStrip) {
    const int64_t end = std::min(start + kStrip, n);
    solve_strip(lu + start * n + start, n, end - start, x + start, columns);
    subtract_product(x + end, lu + start * n + end, x + start, n, n - end, end - start, columns);
  }
  for (int64_t start = (n - 1) / kStrip * kStrip; start >= 0; start -= kStrip) {
    const int64_t end = std::min(start + kStrip, n);
    solve_upper_strip(lu + start * n + start, n, end - start, x + start, columns);
    subtract_product(x, lu + start * n, x + start, n, start, end - start, columns);
  }
}

template <class T>
Integer factor_lu(T* a, int64_t lead, int64_t rows, int64_t columns, Integer* pivots) {
  Integer first_zero = 0;
  for (int64_t start = 0; start < columns; start += kStrip) {
    const int64_t end = std::min(start + kStrip, columns);
    for (int64_t j = start; j < end; ++j) {
      T* const column = a + j * lead;
      const int64_t found = largest(column + j, rows - j);
      const int64_t pivot = found < 0 ? j : j + found;
      pivots[j] = static_cast<Integer>(pivot + 1);
      const T value = column[pivot];
      if (value == 0) {
        if (first_zero == 0) first_zero = static_cast<Integer>(j + 1);
        continue;
      }
      if (pivot != j)
        for (int64_t c = 0; c < columns; ++c) std::swap(a[c * lead + j], a[c * lead + pivot]);
      if (std::abs(value) >= std::numeric_limits<T>::min()) {
        const T by = 1 / value;
        for (int64_t i = j + 1; i < rows; ++i) column[i] *= by;
      } else {
        for (int64_t i = j + 1; i < rows; ++i) column[i] /= value;
      }
      for (int64_t c = j + 1; c < end; ++c)
        subtract_scaled(a + c * lead + j + 1, column + j + 1, a[c * lead + j], rows - j - 1);
    }
    // Applies the strip to the columns on its right: first to its own rows, then to those below.
    solve_strip(a + start * lead + start, lead, end - start, a + end * lead + start, columns - end);
    if (end < columns)
      subtract_product(a + end * lead + end, a + start * lead + end, a + end * lead + start, lead, rows - end,
                       end - start, columns - end);
  }
  return first_zero;
}

// The products of x with each of kColumns columns.
template <int kColumns, class T>
HWY_INLINE void dots(const T* x, const T* y, int64_t lead, int64_t count, T* sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V total[kColumns], other[kColumns];
  for (int q = 0; q < kColumns; ++q) total[q] = other[q] = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const V first = hn::LoadU(d, x + i), second = hn::LoadU(d, x + i + lanes);
    for (int q = 0; q < kColumns; ++q) {
      total[q] = hn::MulAdd(first, hn::LoadU(d, y + q * lead + i), total[q]);
      other[q] = hn::MulAdd(second, hn::LoadU(d, y + q * lead + i + lanes), other[q]);
    }
  }
  for (int q = 0; q < kColumns; ++q) {
    sums[q] = hn::GetLane(hn::SumOfLanes(d, hn::Add(total[q], other[q])));
    for (int64_t k = i; k < count; ++k) sums[q] += x[k] * y[q * lead + k];
  }
}

// Columns -= factor (v . column) v, where v begins with a one that is not stored: element 0 of x is not read.
template <int kColumns, class T>
HWY_INLINE void reflect(const T* x, T* y, int64_t lead, int64_t count, T factor) {
  T sums[kColumns];
  dots<kColumns>(x + 1, y + 1, lead, count - 1, sums);
  for (int q = 0; q < kColumns; ++q) {
    const T by = factor * (sums[q] + y[q * lead]);
    y[q * lead] -= by;
    subtract_scaled(y + q * lead + 1, x + 1, by, count - 1);
  }
}

template <class T>
int64_t factor_qr(T* a, int64_t lead, int64_t rows, int64_t columns, T* tau) {
  // Squares within these bounds lose no digits to underflow and do not overflow when they are added.
  constexpr T kLeast = std::numeric_limits<T>::min() * T(1e6) / std::numeric_limits<T>::epsilon(),
              kMost = std::numeric_limits<T>::max() / 4;
  for (int64_t j = 0; j < columns; ++j) {
    T* const x = a + j * lead + j;
    const int64_t count = rows - j;
    T square = 0;
    dots<1>(x + 1, x + 1, lead, count - 1, &square);
    if (square == 0 && largest(x + 1, count - 1) >= 0) {
      // All are zero, unless their squares underflowed.
      const T top = std::abs(x[1 + largest(x + 1, count - 1)]);
      if (top != 0) return j;
    }
    if (square == 0) {
      tau[j] = 0;
      continue;
    }
    const T whole = square + x[0] * x[0];
    if (!(square >= kLeast && whole <= kMost)) return j;
    const T norm = std::sqrt(whole), end = x[0] < 0 ? norm : -norm;
    tau[j] = (end - x[0]) / end;
    const T by = 1 / (x[0] - end);
    for (int64_t i = 1; i < count; ++i) x[i] *= by;
    x[0] = end;
    int64_t c = j + 1;
    for (; c + 4 <= columns; c += 4) reflect<4>(x, a + c * lead + j, lead, count, tau[j]);
    for (; c < columns; ++c) reflect<1>(x, a + c * lead + j, lead, count, tau[j]);
  }
  return columns;
}

// Takes four columns at a time, since each step of a column waits for the one before. Works in whole vectors, past the
// ends of columns, which are padded with zeros.
template <class T>
void triangle_inverse(const T* a, int64_t lead, int64_t n, bool upper, bool unit, T* inverse) {
  constexpr int64_t kTogether = 4;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), rows = (n + lanes - 1) / lanes * lanes;
  const int64_t columns = (n + kTogether - 1) / kTogether * kTogether;
  const Scratch<T> room((n + columns) * rows);
  T *const triangle = room.data(), *const found = triangle + n * rows;
  std::fill(triangle, triangle + (n + columns) * rows, T(0));
  for (int64_t k = 0; k < n; ++k) {
    const int64_t first = upper ? 0 : k + 1, last = upper ? k : n;
    std::copy(a + k * lead + first, a + k * lead + last, triangle + k * rows + first);
    found[k * rows + k] = 1;
  }
  for (int64_t j = 0; j < columns; j += kTogether) {
    T* const x = found + j * rows;
    // Columns are solved for from their diagonal on; those before theirs meet zeros.
    const int64_t steps = upper ? std::min(n, j + kTogether) : n - j;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t k = upper ? steps - 1 - step : j + step;
      T by[kTogether];
      for (int64_t q = 0; q < kTogether; ++q) {
        if (!unit) x[q * rows + k] /= a[k * lead + k];
        by[q] = x[q * rows + k];
      }
      const int64_t first = upper ? 0 : (k + 1) / lanes * lanes, last = upper ? k : rows;
      for (int64_t i = first; i < last; i += lanes) {
        const auto factor = hn::Load(d, triangle + k * rows + i);
        for (int64_t q = 0; q < kTogether; ++q) {
          T* const to = x + q * rows + i;
          hn::Store(hn::NegMulAdd(factor, hn::Set(d, by[q]), hn::Load(d, to)), d, to);
        }
      }
    }
  }
  for (int64_t j = 0; j < n; ++j) std::copy(found + j * rows, found + j * rows + n, inverse + j * n);
}

#define MICA_PANELS(T, suffix)                                                                              \
  Integer lu_##suffix(T* a, int64_t lead, int64_t rows, int64_t columns, Integer* pivots) {                 \
    return factor_lu(a, lead, rows, columns, pivots);                                                       \
  }                                                                                                         \
  int64_t qr_##suffix(T* a, int64_t lead, int64_t rows, int64_t columns, T* tau) {                          \
    return factor_qr(a, lead, rows, columns, tau);                                                          \
  }                                                                                                         \
  void solve_##suffix(const T* lu, int64_t n, T* x, int64_t columns) { solve_factored(lu, n, x, columns); } \
  void inverse_##suffix(const T* a, int64_t lead, int64_t n, bool upper, bool unit, T* inverse) {           \
    triangle_inverse(a, lead, n, upper, unit, inverse);                                                     \
  }
MICA_PANELS(float, float32)
MICA_PANELS(double, float64)
#undef MICA_PANELS

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(lu_float32);
HWY_EXPORT(lu_float64);
HWY_EXPORT(qr_float32);
HWY_EXPORT(qr_float64);
HWY_EXPORT(solve_float32);
HWY_EXPORT(solve_float64);
HWY_EXPORT(inverse_float32);
HWY_EXPORT(inverse_float64);

namespace panels {
#define MICA_PANELS(T, suffix)                                                                     \
  lapack::Integer lu(T* a, int64_t lead, int64_t rows, int64_t columns, lapack::Integer* pivots) { \
    return HWY_DYNAMIC_DISPATCH(lu_##suffix)(a, lead, rows, columns, pivots);                      \
  }                                                                                                \
  int64_t qr(T* a, int64_t lead, int64_t rows, int64_t columns, T* tau) {                          \
    return HWY_DYNAMIC_DISPATCH(qr_##suffix)(a, lead, rows, columns, tau);                         \
  }                                                                                                \
  void solve_lu(const T* lu, int64_t n, T* x, int64_t columns) {                                   \
    HWY_DYNAMIC_DISPATCH(solve_##suffix)(lu, n, x, columns);                                       \
  }                                                                                                \
  void invert_triangle(const T* a, int64_t lead, int64_t n, bool upper, bool unit, T* inverse) {   \
    HWY_DYNAMIC_DISPATCH(inverse_##suffix)(a, lead, n, upper, unit, inverse);                      \
  }
MICA_PANELS(float, float32)
MICA_PANELS(double, float64)
#undef MICA_PANELS
}  // namespace panels
}  // namespace mica::cpu
#endif
