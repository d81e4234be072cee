// The QR decomposition of one large real matrix on the pool: reflectors in one thread, a panel at a time, and what they
// do to the other columns by this library's products.
#pragma once

#include "backends/cpu/linalg/shared_factor.h"

namespace mica::cpu {

constexpr int64_t kReflectors = 32;  // of a panel

// A panel's reflectors as one: I - V T V^T. V is dense here, with its ones and zeros; T is upper, kReflectors apart.
template <class T>
struct BlockReflector {
  int64_t rows = 0, count = 0;
  std::vector<T> v, t;

  BlockReflector(const T* a, int64_t lead, int64_t rows_of_a, int64_t reflectors, const T* tau)
      : rows(rows_of_a),
        count(reflectors),
        v(static_cast<size_t>(rows_of_a * reflectors)),
        t(static_cast<size_t>(kReflectors * kReflectors), T(0)) {
    for (int64_t j = 0; j < count; ++j) {
      T* const column = v.data() + j * rows;
      std::fill(column, column + j, T(0));
      column[j] = 1;
      std::copy(a + j * lead + j + 1, a + j * lead + rows, column + j + 1);
    }
    std::vector<T> products(static_cast<size_t>(count * count));
    part_product(products.data(), count, count, count, rows, v.data(), rows, int64_t{1}, v.data(), int64_t{1}, rows, 1,
                 0);
    for (int64_t j = 0; j < count; ++j) {
      T* const column = t.data() + j * kReflectors;
      for (int64_t k = 0; k < j; ++k) {
        const T by = -tau[j] * products[static_cast<size_t>(j * count + k)];
        for (int64_t i = 0; i <= k; ++i) column[i] += by * t[static_cast<size_t>(k * kReflectors + i)];
      }
      column[j] = tau[j];
    }
  }

  // C = (I - V T V^T) C, or with T^T, in all threads.
  void apply(T* c, int64_t lead, int64_t columns, bool transpose) const {
    parallel_for(0, columns, 16, [&](int64_t begin, int64_t end) {
      const int64_t width = end - begin;
      T* const mine = c + begin * lead;
      const Scratch<T> room(2 * count * width);
      T *const products = room.data(), *const turned = products + count * width;
      part_product(products, count, count, width, rows, v.data(), rows, int64_t{1}, mine, int64_t{1}, lead, 1, 0);
      part_product(turned, count, count, width, count, t.data(), transpose ? kReflectors : 1,
                   transpose ? 1 : kReflectors, products, int64_t{1}, count, 1, 0);
      subtract_product(mine, lead, rows, width, count, v.data(), int64_t{1}, rows, turned, int64_t{1}, count);
    });
  }
};

// As geqrf leaves it.
template <class T>
void shared_geqrf(T* a, int64_t m, int64_t n, T* tau) {
  using lapack::Integer;
  const int64_t steps = std::min(m, n);
  for (int64_t k = 0; k < steps; k += kReflectors) {
    const int64_t width = std::min(kReflectors, steps - k), from = k + width;
    T* const corner = a + k * m + k;
    const int64_t done = panels::qr(corner, m, m - k, width, tau + k);
    if (done < width) {
      // Numbers so large or small that norms need care: the library takes it.
      const Integer rows = static_cast<Integer>(m - k - done), columns = static_cast<Integer>(width - done);
      const Integer lead = static_cast<Integer>(m), length = columns * 64;
      Integer info = 0;
      std::vector<T> work(static_cast<size_t>(length));
      lapack::call<T>(lapack::Routine::geqrf, &rows, &columns, corner + done * m + done, &lead, tau + k + done,
                      work.data(), &length, &info);
    }
    if (from < n) BlockReflector<T>(corner, m, m - k, width, tau + k).apply(corner + width * m, m, n - from, true);
  }
}

// The first n columns of the product of k reflectors, in place of them.
template <class T>
void shared_orgqr(T* a, int64_t m, int64_t n, int64_t k, const T* tau) {
  const Scratch<T> q(m * n);
  parallel_for(0, n, 64, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      std::fill(q.data() + c * m, q.data() + (c + 1) * m, T(0));
      q[c * m + c] = 1;
    }
  });
  for (int64_t from = (k - 1) / kReflectors * kReflectors; k > 0 && from >= 0; from -= kReflectors)
    BlockReflector<T>(a + from * m + from, m, m - from, std::min(kReflectors, k - from), tau + from)
        .apply(q.data() + from * m + from, m, n - from, false);
  parallel_for(0, n, 64,
               [&](int64_t begin, int64_t end) { std::copy(q.data() + begin * m, q.data() + end * m, a + begin * m); });
}

}  // namespace mica::cpu
