// A = P L U of one large real matrix on the pool, a panel of columns at a time. While other threads update the columns
// on the right, one thread updates the next panel first and factors it, so that only the first panel is waited for.
#pragma once

#include <atomic>
#include <vector>

#include "backends/cpu/linalg/packed_factor.h"
#include "backends/cpu/linalg/shared_factor.h"

namespace mica::cpu {

// Exchanges rows i and pivots[i] - 1 of a column, for i from `first` to `last`.
template <class T>
void exchange_rows(T* column, const lapack::Integer* pivots, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i)
    if (pivots[i] != i + 1) std::swap(column[i], column[pivots[i] - 1]);
}

template <class T>
class SharedLu {
 public:
  SharedLu(T* a, int64_t m, int64_t n, lapack::Integer* pivots)
      : a_(a),
        m_(m),
        n_(n),
        steps_(std::min(m, n)),
        pivots_(pivots),
        exchanges_(static_cast<size_t>((steps_ + kSharedPanel - 1) / kSharedPanel)) {}

  // Leaves the matrix as getrf does. Pivots count from 1. Returns 0, or the number of the first zero on U's diagonal.
  lapack::Integer run() {
    Panel panels[2] = {Panel(m_), Panel(m_)};
    factor(0, panels[0]);
    for (int64_t k = 0, current = 0; k < steps_ && std::min(k + kSharedPanel, steps_) < n_;
         k += kSharedPanel, current ^= 1)
      advance(k, panels[current], panels[current ^ 1]);
    // Columns of earlier panels follow the exchanges of later ones.
    parallel_for(0, steps_, 64, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        for (size_t later = static_cast<size_t>(c / kSharedPanel) + 1; later < exchanges_.size(); ++later)
          exchange(a_ + c * m_, later);
    });
    return first_zero_;
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(T);  // elements of a cache line
  static constexpr int64_t kColumns = 32;           // columns that a thread takes at a time

  // A factored panel as factors for the transposes of other columns.
  struct Panel {
    explicit Panel(int64_t rows) : corner(kSharedPanel, kSharedPanel), below(kSharedPanel, rows) {}
    int64_t width = 0;
    PackedFactor<T> corner;  // the inverse of its unit triangle
    PackedFactor<T> below;
  };

  void factor(int64_t k, Panel& panel) {
    const int64_t width = std::min(kSharedPanel, steps_ - k), from = k + width;
    // Works in a copy whose columns are an odd number of cache lines apart, since those of the matrix may share a few
    // cache sets.
    const int64_t rows = m_ - k, lead = rows / kLine / 2 * 2 * kLine + 3 * kLine;
    const Scratch<T> room(lead * width);
    T* const corner = room.data();
    for (int64_t c = 0; c < width; ++c) std::copy_n(a_ + (k + c) * m_ + k, rows, corner + c * lead);
    const lapack::Integer info = panels::lu(corner, lead, rows, width, pivots_ + k);
    for (int64_t c = 0; c < width; ++c) std::copy_n(corner + c * lead, rows, a_ + (k + c) * m_ + k);
    if (info > 0 && first_zero_ == 0) first_zero_ = static_cast<lapack::Integer>(k) + info;
    for (int64_t i = k; i < from; ++i) {
      pivots_[i] += static_cast<lapack::Integer>(k);
      if (pivots_[i] != i + 1) exchanges_[static_cast<size_t>(k / kSharedPanel)].push_back({i, pivots_[i] - 1});
    }
    if (from == n_) return;
    alignas(64) T inverse[kSharedPanel * kSharedPanel];
    panels::invert_triangle(corner, lead, width, false, true, inverse);
    panel.width = width;
    panel.corner.pack(inverse, width, width, width, 1);
    panel.below.pack(corner + width, width, m_ - from, lead, 1);
  }

  // Exchanges the rows of a column that a panel exchanged.
  void exchange(T* column, size_t panel) const {
    for (const auto [row, other] : exchanges_[panel]) std::swap(column[row], column[other]);
  }

  // Updates columns on the right of panel k.
  void update(int64_t k, const Panel& panel, int64_t first, int64_t count) const {
    const int64_t width = panel.width, from = k + width;
    alignas(64) T room[kSharedPanel * kSharedPanel];
    for (int64_t c = 0; c < count; ++c) {
      T* const column = a_ + (first + c) * m_;
      exchange(column, static_cast<size_t>(k / kSharedPanel));
      std::copy(column + k, column + from, room + c * width);
    }
    T* const above = a_ + first * m_ + k;
    panel.corner.multiply(room, width, above, m_, count, false);
    for (int64_t c = 0; c < count; ++c)
      for (int64_t i = 0; i < width; ++i) room[c * width + i] = -above[c * m_ + i];
    if (from < m_) panel.below.multiply(room, width, above + width, m_, count, true);
  }

  void advance(int64_t k, const Panel& panel, Panel& next) {
    const int64_t from = k + panel.width, next_width = std::min(kSharedPanel, steps_ - from);
    std::atomic<int64_t> left{from + next_width};
    parallel_for(0, get_num_threads(), 1, [&](int64_t begin, int64_t) {
      if (begin == 0 && next_width > 0) {
        update(k, panel, from, next_width);
        factor(from, next);
      }
      for (int64_t c; (c = left.fetch_add(kColumns, std::memory_order_relaxed)) < n_;)
        update(k, panel, c, std::min(kColumns, n_ - c));
    });
  }

  T* a_;
  int64_t m_, n_, steps_;
  lapack::Integer* pivots_;
  lapack::Integer first_zero_ = 0;
  // The pairs of rows that each panel exchanged. There are none where a matrix has large diagonals.
  struct Exchange {
    int64_t row, other;
  };
  std::vector<std::vector<Exchange>> exchanges_;
};

template <class T>
lapack::Integer shared_lu(T* a, int64_t m, int64_t n, lapack::Integer* pivots) {
  return SharedLu<T>(a, m, n, pivots).run();
}

}  // namespace mica::cpu
