// Eigenvalues and right eigenvectors of a real matrix by the steps of LAPACK's geev. The steps that take most of the
// time are this library's own code.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>

#include "backends/cpu/linalg/hessenberg.h"
#include "backends/cpu/linalg/schur.h"
#include "backends/cpu/linalg/schur_vectors.h"
#include "backends/cpu/linalg/shared_qr.h"

namespace mica::cpu {

constexpr int64_t kLeastGeneral = 4;  // matrices of fewer rows go to LAPACK

// With more bytes the reduction waits for memory, and LAPACK's, which reads the matrix less often, is faster.
constexpr int64_t kNearBytes = 2 << 20;

// Scales a vector to length 1. Its squares may leave the range, so its elements are scaled to at most 1 first.
template <class T>
void normalise(T* x, int64_t n, std::complex<T>* to) {
  T most = 0, square = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  for (int64_t i = 0; i < n; ++i) {
    x[i] /= most;
    square += x[i] * x[i];
  }
  const T by = 1 / std::sqrt(square);
  for (int64_t i = 0; i < n; ++i) to[i] = {x[i] * by, 0};
}
// The same of a vector x + iy and of its conjugate; its largest element becomes real.
template <class T>
void normalise(T* x, T* y, int64_t n, std::complex<T>* to) {
  T most = 0, square = 0, top = -1;
  for (int64_t i = 0; i < n; ++i) most = std::max({most, std::abs(x[i]), std::abs(y[i])});
  int64_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    x[i] /= most;
    y[i] /= most;
    const T size = x[i] * x[i] + y[i] * y[i];
    square += size;
    if (size > top) {
      top = size;
      largest = i;
    }
  }
  const T by = 1 / (std::sqrt(square) * std::sqrt(top)), c = x[largest] * by, s = y[largest] * by;
  for (int64_t i = 0; i < n; ++i) {
    to[i] = {c * x[i] + s * y[i], c * y[i] - s * x[i]};
    to[n + i] = std::conj(to[i]);
  }
  to[largest] = to[n + largest] = to[largest].real();
}

// The product of the reflectors that lie below H's diagonal, in rows and columns `first` to `last`; else the identity.
template <class T>
void make_basis(const T* h, int64_t lead, int64_t n, int64_t first, int64_t last, const T* tau, T* z) {
  std::fill_n(z, n * n, T(0));
  for (int64_t j = 0; j < n; ++j) z[j * n + j] = 1;
  const int64_t count = last - first;  // the first row of the block stays as it is
  for (int64_t k = (count - 1) / kReflectors * kReflectors; count > 0 && k >= 0; k -= kReflectors) {
    const int64_t row = first + 1 + k;
    BlockReflector<T>(h + (first + k) * lead + row, lead, count - k, std::min(kReflectors, count - k), tau + first + k,
                      false)
        .apply(z + row * n + row, n, count - k);
  }
}

// X = Z X for the vectors of the Schur form; `x` is row-major.
template <class T>
void multiply_vectors(const T* z, const T* x, int64_t n, T* to) {
  constexpr int64_t kColumns = 64;
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t columns = std::min(kColumns, n - j);
    // A vector of column k has k + 1 elements; the first of a pair has one more.
    part_product(to + j * n, n, n, columns, std::min(n, j + columns + 1), z, int64_t{1}, n, x + j, n, int64_t{1}, 1, 0);
  }
}

// `vectors` may be null. The elements of `matrix` lie in the plain range (shared_spectral.h). False where the iteration
// does not end.
template <class T>
bool general_eig(const T* matrix, int64_t n, std::complex<T>* values, std::complex<T>* vectors) {
  using lapack::Integer;
  using lapack::Routine;
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t lead = (n + kLine - 1) / kLine * kLine;
  const Integer order = static_cast<Integer>(n), distance = static_cast<Integer>(lead);
  const Scratch<T> room(lead * n), scale(n), tau(n), values_room(2 * n), z(vectors ? n * n : 1);
  T *const a = room.data(), *const real = values_room.data(), *const imaginary = real + n;
  for (int64_t j = 0; j < n; ++j) {
    std::copy_n(matrix + j * n, n, a + j * lead);
    std::fill(a + j * lead + n, a + (j + 1) * lead, T(0));
  }
  const char both = 'B', right = 'R';
  Integer low = 0, high = 0, info = 0;
  lapack::call<T>(Routine::gebal, &both, &order, a, &distance, &low, &high, scale.data(), &info);
  const int64_t first = low - 1, last = high - 1;
  if (lead * n * static_cast<int64_t>(sizeof(T)) <= kNearBytes) {
    hessenberg::reduce(a, lead, n, first, last, tau.data());
  } else {
    const Integer length = static_cast<Integer>(64 * n + 4160);
    const Scratch<T> work(length);
    lapack::call<T>(Routine::gehrd, &order, &low, &high, a, &distance, tau.data(), work.data(), &length, &info);
  }
  if (vectors) make_basis(static_cast<const T*>(a), lead, n, first, last, tau.data(), z.data());
  for (int64_t j = 0; j < n; ++j) {
    std::fill(a + j * lead + std::min(j + 2, n), a + (j + 1) * lead, T(0));
    real[j] = a[j * lead + j];  // eigenvalues that balancing has isolated
    imaginary[j] = 0;
  }
  const schur::Problem<T> problem{a, lead, n, vectors ? z.data() : nullptr, n, n, real, imaginary, vectors != nullptr};
  if (!schur::run(problem, first, last)) return false;
  for (int64_t j = 0; j < n; ++j) values[j] = {real[j], imaginary[j]};
  if (!vectors) return true;
  // A block of two rows has two conjugate eigenvalues, or the vectors would not fit.
  for (int64_t j = 0; j < n; ++j)
    if (j + 1 < n && a[j * lead + j + 1] != 0) {
      if (!(imaginary[j] > 0 && imaginary[j + 1] < 0)) return false;
      ++j;
    } else if (imaginary[j] != 0) {
      return false;
    }
  const Scratch<T> x(n * n), found(n * n);
  schur::vectors(a, lead, n, real, imaginary, x.data());
  multiply_vectors(static_cast<const T*>(z.data()), static_cast<const T*>(x.data()), n, found.data());
  lapack::call<T>(Routine::gebak, &both, &right, &order, &low, &high, scale.data(), &order, found.data(), &order,
                  &info);
  for (int64_t j = 0; j < n; ++j) {
    T* const column = found.data() + j * n;
    if (imaginary[j] == 0) {
      normalise(column, n, vectors + j * n);
    } else {
      normalise(column, column + n, n, vectors + j * n);
      ++j;
    }
  }
  return true;
}

}  // namespace mica::cpu
