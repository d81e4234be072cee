// The walk that all reductions share: which elements go to which output, in what order of memory, on which threads. An
// operation brings the arithmetic on runs of contiguous elements as function pointers, so that the walk is compiled
// once.
#pragma once

#include <cstdint>

#include "backends/cpu/reduce/element_load.h"
#include "mica/backend/tensor_view.h"

namespace mica::cpu {

// Accumulators are plain data. `first` is the place of x[0] among all elements that meet in an output.
struct Reduction {
  int64_t accumulator_bytes;
  void (*start)(void* accumulators, int64_t n);
  // Row i, `count` elements at x + i * row_stride, goes into accumulator i.
  void (*rows)(void* accumulators, const void* x, int64_t rows, int64_t row_stride, int64_t count, int64_t first,
               const void* context);
  // Column j of `count` rows, x[j], x[j + row_stride]..., goes into accumulator j.
  void (*columns)(void* accumulators, const void* x, int64_t columns, int64_t row_stride, int64_t count, int64_t first,
                  const void* context);
  void (*merge)(void* accumulators, const void* others, int64_t n);
  // Writes the results of n accumulators, `out_strides` bytes apart. `count` elements met in each.
  void (*finish)(const void* accumulators, int64_t n, char* const* out, const int64_t* out_strides, int64_t count,
                 const void* context);
  int outputs = 1;
  // Whether `first` matters. Then only one dimension is reduced, or all dimensions of a contiguous tensor.
  bool ordered = false;
};

inline constexpr int64_t kMaxAccumulatorBytes = 32;

// The result does not depend on the number of threads: how the elements are grouped follows from the shape alone.
void run_reduction(const Reduction& reduction, const ElementLoad& load, const TensorView* const* outputs,
                   const TensorView& self, uint64_t dims, const void* context = nullptr);

}  // namespace mica::cpu
