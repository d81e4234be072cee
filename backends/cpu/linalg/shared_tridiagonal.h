// Eigenvalues and vectors of a symmetric tridiagonal matrix on the pool: its halves apart from one coupling, each by
// the library in a thread of its own, then the coupling, whose equations for the eigenvalues all threads share
// (Cuppen's division, with Gu and Eisenstat's vectors).
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/linalg/shared_factor.h"

namespace mica::cpu {

// Joins two halves: D + rho z z^T in the basis Q of their eigenvectors, of which the first n1 columns are zero below
// row n1 and the others above it.
template <class T>
class Coupling {
 public:
  Coupling(int64_t n, int64_t n1, T* d, const T* q, T beta)
      : n_(n), n1_(n1), d_(d), q_(n * n), rho_(2 * std::abs(beta)) {
    std::copy(q, q + n * n, q_.data());
    const T half = std::sqrt(T(0.5));  // z has two halves of length 1
    for (int64_t j = 0; j < n; ++j)
      z_.push_back(half * (j < n1 ? q[j * n + n1 - 1] : beta < 0 ? -q[j * n + n1] : q[j * n + n1]));
  }

  // Computes the eigenvalues in ascending order and their vectors. Returns false where the library should do all of it.
  bool run(T* values, T* vectors) {
    deflate();
    const int64_t kept = static_cast<int64_t>(kept_.size());
    if (kept < 3 || !solve()) return false;
    std::vector<int64_t> order(static_cast<size_t>(n_));
    // First those from the equations, then those that were set aside.
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto value = [&](int64_t k) { return k < kept ? roots_[size(k)] : d_[aside_[size(k - kept)]]; };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value(a) < value(b); });
    const Scratch<T> found(n_ * kept);
    multiply(found.data());
    for (int64_t k = 0; k < n_; ++k) {
      const int64_t from = order[size(k)];
      const T* const column = from < kept ? found.data() + from * n_ : q_.data() + aside_[size(from - kept)] * n_;
      std::copy(column, column + n_, vectors + k * n_);
      values[k] = value(from);
    }
    return true;
  }

 private:
  static size_t size(int64_t k) { return static_cast<size_t>(k); }

  // Sets those eigenvectors aside that the coupling does not change, or that a rotation separates from it.
  void deflate() {
    std::vector<int64_t> order(static_cast<size_t>(n_));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return d_[a] < d_[b]; });
    T top = 0;
    for (int64_t j = 0; j < n_; ++j) top = std::max({top, std::abs(d_[j]), std::abs(z_[size(j)])});
    const T least = 8 * std::numeric_limits<T>::epsilon() / 2 * top;
    mixed_.assign(static_cast<size_t>(n_), false);
    int64_t before = -1;
    for (const int64_t j : order) {
      if (rho_ * std::abs(z_[size(j)]) <= least) {
        aside_.push_back(j);
        continue;
      }
      if (before >= 0 && !rotate(before, j, least)) kept_.push_back(before);
      before = j;
    }
    if (before >= 0) kept_.push_back(before);
  }

  // Whether two eigenvalues are so close that a rotation separates the first from the coupling; makes that rotation.
  bool rotate(int64_t first, int64_t second, T least) {
    T &a = z_[size(first)], &b = z_[size(second)];
    const T length = std::hypot(a, b), c = b / length, s = -a / length, apart = d_[second] - d_[first];
    if (std::abs(apart * c * s) > least) return false;
    b = length;
    a = 0;
    if ((first < n1_) != (second < n1_) || mixed_[size(first)] || mixed_[size(second)])
      mixed_[size(first)] = mixed_[size(second)] = true;
    T *const x = q_.data() + first * n_, *const y = q_.data() + second * n_;
    for (int64_t i = 0; i < n_; ++i) {
      const T left = x[i];
      x[i] = c * left + s * y[i];
      y[i] = c * y[i] - s * left;
    }
    const T low = d_[first] * c * c + d_[second] * s * s;
    d_[second] = d_[first] * s * s + d_[second] * c * c;
    d_[first] = low;
    aside_.push_back(first);
    return true;
  }

  // The roots, and for each the vector in the basis of those kept. False where the library finds no root.
  bool solve() {
    using lapack::Integer;
    const int64_t kept = static_cast<int64_t>(kept_.size());
    std::vector<T> poles, weights;
    for (const int64_t j : kept_) {
      poles.push_back(d_[j]);
      weights.push_back(z_[size(j)]);
    }
    roots_.resize(size(kept));
    distances_.resize(size(kept * kept));  // from poles to roots, a column for each root
    std::atomic<bool> failed{false};
    parallel_for(0, kept, 8, [&](int64_t begin, int64_t end) {
      const Integer count = static_cast<Integer>(kept);
      for (int64_t j = begin; j < end; ++j) {
        const Integer which = static_cast<Integer>(j + 1);
        Integer info = 0;
        lapack::call<T>(lapack::Routine::laed4, &count, &which, poles.data(), weights.data(),
                        distances_.data() + j * kept, &rho_, roots_.data() + j, &info);
        if (info != 0) failed = true;
      }
    });
    if (failed) return false;
    // The weights for which these roots are exact: their vectors are orthogonal.
    std::vector<T> exact(size(kept));
    parallel_for(0, kept, 32, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) exact[size(i)] = distances_[size(i * kept + i)];
      for (int64_t j = 0; j < kept; ++j) {
        const T* const column = distances_.data() + j * kept;
        const auto part = [&](int64_t from, int64_t to) {
          for (int64_t i = from; i < to; ++i) exact[size(i)] *= column[i] / (poles[size(i)] - poles[size(j)]);
        };
        part(begin, std::min(end, j));
        part(std::max(begin, j + 1), end);
      }
      for (int64_t i = begin; i < end; ++i)
        exact[size(i)] = std::copysign(std::sqrt(-exact[size(i)]), weights[size(i)]);
    });
    parallel_for(0, kept, 16, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        T* const column = distances_.data() + j * kept;
        T square = 0;
        for (int64_t i = 0; i < kept; ++i) {
          column[i] = exact[size(i)] / column[i];
          square += column[i] * column[i];
        }
        const T by = 1 / std::sqrt(square);
        for (int64_t i = 0; i < kept; ++i) column[i] *= by;
      }
    });
    return true;
  }

  // The vectors in the basis that the matrix is in: rows of each half from those columns that are not zero there.
  void multiply(T* found) const {
    const int64_t kept = static_cast<int64_t>(kept_.size());
    for (const bool lower : {false, true}) {
      const int64_t first = lower ? n1_ : 0, rows = lower ? n_ - n1_ : n1_;
      std::vector<int64_t> used;
      for (int64_t k = 0; k < kept; ++k)
        if (mixed_[size(kept_[size(k)])] || (kept_[size(k)] >= n1_) == lower) used.push_back(k);
      const int64_t depth = static_cast<int64_t>(used.size());
      const Scratch<T> basis(rows * depth + 1), weights(depth * kept + 1);
      parallel_for(0, kept, 32, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j)
          for (int64_t u = 0; u < depth; ++u) weights[j * depth + u] = distances_[size(j * kept + used[size(u)])];
      });
      for (int64_t u = 0; u < depth; ++u) {
        const T* const column = q_.data() + kept_[size(used[size(u)])] * n_ + first;
        std::copy(column, column + rows, basis.data() + u * rows);
      }
      part_product(found + first, n_, rows, kept, depth, static_cast<const T*>(basis.data()), int64_t{1}, rows,
                   static_cast<const T*>(weights.data()), int64_t{1}, depth, 1, 0);
    }
  }

  int64_t n_, n1_;
  T* d_;
  Scratch<T> q_;
  T rho_;
  std::vector<T> z_, roots_, distances_;
  std::vector<bool> mixed_;  // columns with elements in both halves
  std::vector<int64_t> kept_, aside_;
};

// Does what stedc does for a matrix of its own ('I'): takes the diagonal `d` and the elements `e` beside it, destroys
// both, and returns vectors as columns.
template <class T>
lapack::Integer shared_stedc(int64_t n, T* d, T* e, T* vectors) {
  using lapack::Integer;
  const auto whole = [](int64_t count, T* diagonal, T* beside, T* z, int64_t lead) {
    const char job = 'I';
    const Integer order = static_cast<Integer>(count), lead_of_z = static_cast<Integer>(lead);
    const Integer length = static_cast<Integer>(1 + 4 * count + count * count);
    const Integer integer_length = static_cast<Integer>(3 + 5 * count);
    const Scratch<T> work(length);
    std::vector<Integer> integers(static_cast<size_t>(integer_length));
    Integer info = 0;
    lapack::call<T>(lapack::Routine::stedc, &job, &order, diagonal, beside, z, &lead_of_z, work.data(), &length,
                    integers.data(), &integer_length, &info);
    return info;
  };
  const int64_t n1 = n / 2;
  T top = 0;
  for (int64_t i = 0; i < n; ++i) top = std::max({top, std::abs(d[i]), i + 1 < n ? std::abs(e[i]) : T(0)});
  if (get_num_threads() == 1 || n < 128 || top == 0 || e[n1 - 1] == 0) return whole(n, d, e, vectors, n);

  std::vector<T> diagonal(d, d + n), beside(e, e + n - 1);
  for (T& v : diagonal) v /= top;
  for (T& v : beside) v /= top;
  const T beta = beside[static_cast<size_t>(n1 - 1)];
  diagonal[static_cast<size_t>(n1 - 1)] -= std::abs(beta);
  diagonal[static_cast<size_t>(n1)] -= std::abs(beta);
  std::fill(vectors, vectors + n * n, T(0));
  Integer infos[2] = {};
  parallel_for(0, 2, 1, [&](int64_t begin, int64_t end) {
    for (int64_t half = begin; half < end; ++half) {
      const int64_t first = half ? n1 : 0;
      infos[half] =
          whole(half ? n - n1 : n1, diagonal.data() + first, beside.data() + first, vectors + first * n + first, n);
    }
  });
  Coupling<T> coupling(n, n1, diagonal.data(), vectors, beta);
  std::vector<T> values(static_cast<size_t>(n));
  if (infos[0] != 0 || infos[1] != 0 || !coupling.run(values.data(), vectors)) return whole(n, d, e, vectors, n);
  for (int64_t i = 0; i < n; ++i) d[i] = values[static_cast<size_t>(i)] * top;
  return 0;
}

}  // namespace mica::cpu
