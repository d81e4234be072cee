// Walks the nest of a PointwiseLoop. The runners of inner loops share it.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "backends/cpu/pointwise/run_loop.h"
#include "mica/backend/pointwise_loop.h"

namespace mica::cpu {

inline constexpr int kOperands = PointwiseLoop::kMaxOperands;

// A position in the nest, in its own order: dimension 0 runs fastest.
class Odometer {
 public:
  Odometer(const PointwiseLoop& loop, int64_t linear) : loop_(loop) {
    for (int d = 0; d < loop.ndim; ++d) {
      index_[d] = linear % loop.shape[d];
      linear /= loop.shape[d];
    }
  }
  int64_t left_in_row() const { return loop_.shape[0] - index_[0]; }
  char* address(int operand) const {
    char* p = loop_.data[operand];
    for (int d = 0; d < loop_.ndim; ++d) p += index_[d] * loop_.strides[d][operand];
    return p;
  }
  void addresses(char** at) const {
    for (int k = 0; k < loop_.noperands; ++k) at[k] = address(k);
  }
  // Rows from here to the end of dimension 1.
  int64_t rows_left() const { return loop_.ndim > 1 ? loop_.shape[1] - index_[1] : 1; }
  // Moves from anywhere in a row to the start of the next. Pointers in `at` that stood at the start of the row follow.
  void next_row(char** at, int first, int last) { advance(at, first, last, 1); }
  // The same over at most as many rows as are left.
  void advance(char** at, int first, int last, int64_t rows) {
    index_[0] = 0;
    for (int d = 1; d < loop_.ndim; ++d, rows = 1) {
      for (int k = first; k < last; ++k) at[k] += rows * loop_.strides[d][k];
      if ((index_[d] += rows) < loop_.shape[d]) return;
      for (int k = first; k < last; ++k) at[k] -= loop_.strides[d][k] * loop_.shape[d];
      index_[d] = 0;
    }
  }
  int64_t column() const { return index_[0]; }

 private:
  const PointwiseLoop& loop_;
  int64_t index_[PointwiseLoop::kMaxDims];
};

// Visits elements [begin, end) of the nest in its own order, row by row.
template <class Row>
void for_each_row(const PointwiseLoop& loop, int64_t begin, int64_t end, const Row& row) {
  Odometer at(loop, begin);
  char* start[kOperands];
  at.addresses(start);
  for (int k = 0; k < loop.noperands; ++k) start[k] -= at.column() * loop.strides[0][k];
  for (int64_t left = end - begin; left > 0;) {
    const int64_t count = std::min(left, at.left_in_row());
    char* here[kOperands];
    for (int k = 0; k < loop.noperands; ++k) here[k] = start[k] + at.column() * loop.strides[0][k];
    row(here, count);
    left -= count;
    at.next_row(start, 0, loop.noperands);
  }
}

// The same, but with all whole rows of dimension 1 at a time: band(addresses, elements of a row, rows).
template <class Band>
void for_each_band(const PointwiseLoop& loop, int64_t begin, int64_t end, const Band& band) {
  Odometer at(loop, begin);
  char* start[kOperands];
  at.addresses(start);
  for (int64_t left = end - begin; left > 0;) {
    const int64_t width = std::min(left, at.left_in_row());
    const int64_t rows = width < loop.shape[0] ? 1 : std::min(left / width, at.rows_left());
    band(start, width, rows);
    left -= width * rows;
    for (int k = 0; k < loop.noperands; ++k) start[k] -= at.column() * loop.strides[0][k];
    at.advance(start, 0, loop.noperands, rows);
  }
}

// Runs a loop whose one output has long contiguous rows and is too large for the nearer caches: asks for its lines
// ahead, or writes past the caches. Returns false, and has run nothing, where that does not pay or the loop is of
// another form.
bool run_far(const PointwiseLoop& loop, RowsLoop rows, const void* context, int64_t grain);

// An inner loop as a RowsLoop; its address is the context.
struct OneRow {
  int operands;
  InnerLoop inner;
  const void* context;
};
void one_row_at_a_time(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides, int64_t rows,
                       const void* one_row);

}  // namespace mica::cpu
