// The QR decomposition of one large real matrix on the pool. One thread makes the reflectors, a panel at a time; this
// library's products apply them to the other columns.
#pragma once

#include "backends/cpu/linalg/packed_factor.h"
#include "backends/cpu/linalg/shared_factor.h"

namespace mica::cpu {

constexpr int64_t kReflectors = 32;  // reflectors of a panel

// A panel's reflectors as one, H = I - V T V^T or its transpose, in two factors: the transpose of H C is that of C plus
// (C^T V) (-T^T V^T).
template <class T>
class BlockReflector {
 public:
  BlockReflector(const T* a, int64_t lead, int64_t rows, int64_t count, const T* tau, bool transpose)
      : rows_(rows), count_(count), gather_(rows, count), spread_(count, rows) {
    // V is dense here, with its ones and zeros; T is upper.
    const Scratch<T> v(rows * count), turned(rows * count);
    for (int64_t j = 0; j < count; ++j) {
      T* const column = v.data() + j * rows;
      std::fill(column, column + j, T(0));
      column[j] = 1;
      std::copy(a + j * lead + j + 1, a + j * lead + rows, column + j + 1);
    }
    gather_.pack(v.data(), rows, count, 1, rows);
    T products[kReflectors * kReflectors], t[kReflectors * kReflectors] = {};
    gather_.multiply(v.data(), rows, products, kReflectors, count, false);
    for (int64_t j = 0; j < count; ++j) {
      T* const column = t + j * kReflectors;
      for (int64_t k = 0; k < j; ++k) {
        const T by = -tau[j] * products[j * kReflectors + k];
        for (int64_t i = 0; i <= k; ++i) column[i] += by * t[k * kReflectors + i];
      }
      column[j] = tau[j];
    }
    part_product(turned.data(), rows, rows, count, count, v.data(), int64_t{1}, rows, t, transpose ? kReflectors : 1,
                 transpose ? 1 : kReflectors, -1, 0);
    spread_.pack(turned.data(), count, rows, rows, 1);
  }

  // Applies the reflectors to `columns` columns, in all threads.
  void apply(T* c, int64_t lead, int64_t columns) const {
    const int64_t grain = std::max<int64_t>(16, kWorthAThread / (rows_ * count_));
    parallel_for(0, columns, grain, [&](int64_t begin, int64_t end) {
      constexpr int64_t kTogether = 48;
      T products[kTogether * kReflectors];
      for (int64_t first = begin; first < end; first += kTogether) {
        const int64_t width = std::min(kTogether, end - first);
        gather_.multiply(c + first * lead, lead, products, count_, width, false);
        spread_.multiply(products, count_, c + first * lead, lead, width, true);
      }
    });
  }

 private:
  static constexpr int64_t kWorthAThread = 1 << 18;  // products that are worth a thread

  int64_t rows_, count_;
  PackedFactor<T> gather_, spread_;
};

// Leaves the matrix as geqrf does.
template <class T>
void shared_geqrf(T* a, int64_t m, int64_t n, T* tau) {
  using lapack::Integer;
  const int64_t steps = std::min(m, n);
  for (int64_t k = 0; k < steps; k += kReflectors) {
    const int64_t width = std::min(kReflectors, steps - k), from = k + width;
    T* const corner = a + k * m + k;
    const int64_t done = panels::qr(corner, m, m - k, width, tau + k);
    if (done < width) {
      // Where numbers are so large or small that norms need care, the library continues.
      const Integer rows = static_cast<Integer>(m - k - done), columns = static_cast<Integer>(width - done);
      const Integer lead = static_cast<Integer>(m), length = columns * 64;
      Integer info = 0;
      std::vector<T> work(static_cast<size_t>(length));
      lapack::call<T>(lapack::Routine::geqrf, &rows, &columns, corner + done * m + done, &lead, tau + k + done,
                      work.data(), &length, &info);
    }
    if (from < n) BlockReflector<T>(corner, m, m - k, width, tau + k, true).apply(corner + width * m, m, n - from);
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
    BlockReflector<T>(a + from * m + from, m, m - from, std::min(kReflectors, k - from), tau + from, false)
        .apply(q.data() + from * m + from, m, n - from);
  parallel_for(0, n, 64,
               [&](int64_t begin, int64_t end) { std::copy(q.data() + begin * m, q.data() + end * m, a + begin * m); });
}

}  // namespace mica::cpu
