// Integers that lie within a small range are counted, which is less work than sorting them.
#pragma once

#include <cstdint>

#include "mica/backend/tensor_view.h"

namespace mica::cuda {

// Where the distinct values of dense integers go; the pointers of what is not wanted are null.
struct Distinct {
  void* values;
  int64_t *counts, *inverse;
};

// An integer becomes a number of the same order: its bits, with those of `flip` turned.
struct IntegerRange {
  uint64_t flip, lowest, highest;
};
IntegerRange range_of(const TensorView& self);

// Whether a table of counters for the range pays.
bool counts_range(const TensorView& self, const IntegerRange& range);
// The number of distinct values.
int64_t unique_by_counting(const Distinct& to, const TensorView& self, const IntegerRange& range);

}  // namespace mica::cuda
