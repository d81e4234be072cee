// Walks the rows of several operands in step, and shares rows or parts of one row among threads.
#pragma once

#include <algorithm>
#include <array>

#include "backends/cpu/sort/sort.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu {

// The element offsets of consecutive rows in `Operands` operands, the last batch dim fastest.
template <int Operands>
class RowCursor {
 public:
  RowCursor(std::span<const int64_t> batch, const std::array<std::span<const int64_t>, Operands>& strides, int64_t row)
      : batch_(batch), strides_(strides) {
    for (int dim = static_cast<int>(batch.size()) - 1; dim >= 0; --dim) {
      index_[dim] = row % batch[dim];
      row /= batch[dim];
      for (int op = 0; op < Operands; ++op) {
        if (!strides[op].empty()) offset_[op] += index_[dim] * strides[op][dim];
      }
    }
  }

  int64_t offset(int operand) const { return offset_[operand]; }

  void next() {
    for (int dim = static_cast<int>(batch_.size()) - 1; dim >= 0; --dim) {
      const bool wraps = ++index_[dim] == batch_[dim];
      const int64_t step = wraps ? 1 - batch_[dim] : 1;
      for (int op = 0; op < Operands; ++op) {
        if (!strides_[op].empty()) offset_[op] += step * strides_[op][dim];
      }
      if (!wraps) return;
      index_[dim] = 0;
    }
  }

 private:
  std::span<const int64_t> batch_;
  std::array<std::span<const int64_t>, Operands> strides_;
  std::array<int64_t, kMaxBatchDims> index_;
  std::array<int64_t, Operands> offset_{};
};

inline void check_batch_rank(const char* op, const RowShape& shape) {
  MICA_CHECK(shape.batch.size() <= kMaxBatchDims, op, "(): got ", shape.batch.size() + 1, " dimensions, at most ",
             kMaxBatchDims + 1, " are supported");
}

// The elements that make a thread worth waking.
inline constexpr int64_t kParallelGrain = 16384;

// Into how many parts to split the work on a single row; one when the rows alone keep all threads busy.
inline int parts_per_row(int64_t rows, int64_t n) {
  const int64_t threads = get_num_threads();
  if (rows >= threads || in_parallel_region()) return 1;
  return static_cast<int>(std::clamp<int64_t>(n / kParallelGrain, 1, threads));
}

// Runs body(first_row, last_row), on all threads when rows are not split into parts.
template <class Body>
void for_each_row_range(int64_t rows, int64_t n, int parts, Body&& body) {
  if (rows == 0) return;
  if (parts > 1) {
    body(int64_t{0}, rows);
  } else {
    parallel_for(0, rows, std::max<int64_t>(1, kParallelGrain / std::max<int64_t>(n, 1)), body);
  }
}

// Splits [0, n) into `parts` ranges and runs body(part, begin, end) on each.
template <class Body>
void for_each_part(int64_t n, int parts, Body&& body) {
  if (parts == 1) {
    body(0, int64_t{0}, n);
    return;
  }
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      body(static_cast<int>(part), n * part / parts, n * (part + 1) / parts);
    }
  });
}

}  // namespace mica::cpu
