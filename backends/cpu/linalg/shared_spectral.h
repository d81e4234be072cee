// Eigenvectors and singular vectors of one large real square matrix. The library reduces it to a few diagonals and
// finds the vectors of those, in one thread; the reflectors that lead back are applied in all threads, as products.
#pragma once

#include <cmath>
#include <limits>

#include "backends/cpu/linalg/flush_tiny.h"
#include "backends/cpu/linalg/shared_qr.h"
#include "backends/cpu/linalg/shared_tridiagonal.h"

namespace mica::cpu {

// Whether the matrix needs no scaling before the reduction. LAPACK's own drivers scale the others.
template <class T>
bool in_plain_range(const T* a, int64_t count) {
  constexpr int64_t kTogether = 16;
  T tops[kTogether] = {};
  int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether)
    for (int64_t k = 0; k < kTogether; ++k) tops[k] = std::max(tops[k], std::abs(a[i + k]));
  for (; i < count; ++i) tops[0] = std::max(tops[0], std::abs(a[i]));
  const T top = *std::max_element(tops, tops + kTogether);
  const T least = std::sqrt(std::numeric_limits<T>::min()) / std::numeric_limits<T>::epsilon();
  return top == 0 || (top > least && top < 1 / least);
}

// X = H_0 H_1 ... X for reflectors as geqrf leaves them in `a`, of `rows` rows; X has as many.
template <class T>
void apply_reflectors(const T* a, int64_t lead, int64_t rows, int64_t reflectors, const T* tau, T* x, int64_t x_lead,
                      int64_t columns) {
  for (int64_t from = (reflectors - 1) / kReflectors * kReflectors; reflectors > 0 && from >= 0; from -= kReflectors)
    BlockReflector<T>(a + from * lead + from, lead, rows - from, std::min(kReflectors, reflectors - from), tau + from,
                      false)
        .apply(x + from, x_lead, columns);
}

// Transposes by squares, whose lines stay in the cache until they are complete.
template <class T>
void transpose_square(const T* from, T* to, int64_t n) {
  constexpr int64_t kSide = 16;
  for (int64_t column = 0; column < n; column += kSide)
    for (int64_t row = 0; row < n; row += kSide)
      for (int64_t i = row; i < std::min(row + kSide, n); ++i)
        for (int64_t j = column; j < std::min(column + kSide, n); ++j) to[i * n + j] = from[j * n + i];
}

// The eigenvectors replace `a`, of which one triangle is read; returns what syevd does.
template <class T>
lapack::Integer shared_eigh(T* a, int64_t n, T* values, bool upper) {
  using lapack::Integer;
  using lapack::Routine;
  if (upper)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = j + 1; i < n; ++i) a[j * n + i] = a[i * n + j];
  const char triangle = 'L';
  const Integer order = static_cast<Integer>(n), length = static_cast<Integer>(64 * n);
  const Scratch<T> vectors(n * n), beside(n), tau(n), work(length);
  Integer info = 0;
  const FlushTiny flush(true);  // the caller has checked the range
  lapack::call<T>(Routine::sytrd, &triangle, &order, a, &order, values, beside.data(), tau.data(), work.data(), &length,
                  &info);
  if (info == 0) info = shared_stedc(n, values, beside.data(), vectors.data());
  if (info != 0) return info;
  apply_reflectors(a + 1, n, n - 1, n - 1, tau.data(), vectors.data() + 1, n, n);
  std::copy(vectors.data(), vectors.data() + n * n, a);
  return 0;
}

// `a` is destroyed; returns what gesdd does.
template <class T>
lapack::Integer shared_svd(T* a, int64_t n, T* u, T* values, T* vh) {
  using lapack::Integer;
  using lapack::Routine;
  const char triangle = 'U', job = 'I';
  const Integer order = static_cast<Integer>(n);
  const Integer length = static_cast<Integer>(std::max<int64_t>(128 * n, 3 * n * n + 4 * n));
  const Scratch<T> beside(n), left(n), right(n), work(length), rows(n * n), v(n * n);
  std::vector<Integer> integers(static_cast<size_t>(8 * n));
  Integer info = 0;
  const FlushTiny flush(true);
  lapack::call<T>(Routine::gebrd, &order, &order, a, &order, values, beside.data(), left.data(), right.data(),
                  work.data(), &length, &info);
  T unused = 0;
  Integer unused_integer = 0;
  if (info == 0)
    lapack::call<T>(Routine::bdsdc, &triangle, &job, &order, values, beside.data(), u, &order, vh, &order, &unused,
                    &unused_integer, work.data(), integers.data(), &info);
  if (info != 0) return info;
  apply_reflectors(a, n, n, n, left.data(), u, n, n);
  // The vectors of the other side lie in rows.
  transpose_square(a, rows.data(), n);
  transpose_square(vh, v.data(), n);
  apply_reflectors(rows.data() + 1, n, n - 1, n - 1, right.data(), v.data() + 1, n, n);
  transpose_square(v.data(), vh, n);
  return 0;
}

}  // namespace mica::cpu
