// Batches of matrices as the kernels of this folder get them: column-major and dense, one after the other.
#pragma once

#include <algorithm>
#include <cmath>

#include "backends/cpu/linalg/lapack.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu {

template <class T>
struct Matrices {
  T* data;
  int64_t rows, columns, count;

  explicit Matrices(const TensorView& view)
      : data(view.ptr<T>()), rows(view.size(-2)), columns(view.size(-1)), count(1) {
    for (int d = 0; d < view.ndim - 2; ++d) count *= view.sizes[d];
  }
  T* operator[](int64_t i) const { return data + i * rows * columns; }
  lapack::Integer m() const { return static_cast<lapack::Integer>(rows); }
  lapack::Integer n() const { return static_cast<lapack::Integer>(columns); }
  lapack::Integer lead() const { return std::max<lapack::Integer>(1, m()); }  // LAPACK wants at least one
};

// Vectors that belong to matrices: `length` numbers for each.
template <class T>
struct Vectors {
  T* data;
  int64_t length;
  explicit Vectors(const TensorView& view) : data(view.ptr<T>()), length(view.ndim ? view.size(-1) : 1) {}
  T* operator[](int64_t i) const { return data + i * length; }
};

// From 2048 rows and columns on, one matrix is worth the library's threads. They wait for each other by spinning, which
// costs more than it gains in the small steps of smaller matrices, and far more where other programs want the cores.
constexpr double kSharedWork = 2048.0 * 2048 * 2048;

// Runs f(i, j) over ranges of matrices: many on the pool, a single large one with the library's threads.
template <class F>
void over_matrices(int64_t count, int64_t rows, int64_t columns, const F& f) {
  const double work =
      static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(std::max(rows, columns));
  const lapack::Calls calls;
  if (count == 1) {
    const lapack::Threads threads(work >= kSharedWork);
    return f(int64_t{0}, int64_t{1});
  }
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(20000.0 / (work + 1000.0)));
  parallel_for(0, count, grain, [&](int64_t begin, int64_t end) { f(begin, end); });
}

// Calls f with a Tag of the element type, of which LAPACK has four.
template <class T>
struct MatrixTag {
  using type = T;
};
template <class F>
void visit_matrix(const char* op, DType dtype, const F& f) {
  switch (dtype) {
    case DType::Float32:
      return f(MatrixTag<float>{});
    case DType::Float64:
      return f(MatrixTag<double>{});
    case DType::Complex64:
      return f(MatrixTag<complex64>{});
    case DType::Complex128:
      return f(MatrixTag<complex128>{});
    default:
      unsupported_dtype(op, dtype);
  }
}

// The size of the work space, which a routine has left in its first element.
template <class T>
lapack::Integer asked_for(T size) {
  return std::max<lapack::Integer>(1, static_cast<lapack::Integer>(std::real(size)));
}

// Adds several at a time, so that no element waits for the one before.
template <class T>
bool all_finite(const T* a, int64_t count) {
  using R = lapack::Real<T>;
  constexpr int64_t kTogether = 16;
  const R* const numbers = reinterpret_cast<const R*>(a);  // complex numbers are pairs
  const int64_t total = count * static_cast<int64_t>(sizeof(T) / sizeof(R));
  R sums[kTogether] = {};
  int64_t i = 0;
  for (; i + kTogether <= total; i += kTogether)
    // Zero for finite numbers, NaN for others.
    for (int64_t k = 0; k < kTogether; ++k) sums[k] += numbers[i + k] * R(0);
  for (; i < total; ++i) sums[0] += numbers[i] * R(0);
  R sum = 0;
  for (const R s : sums) sum += s;
  return sum == 0;
}

}  // namespace mica::cpu
