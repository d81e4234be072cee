// The walk of cumulative operations: which rows or blocks of columns are scanned, on which threads.
#pragma once

#include <cstdint>

#include "mica/backend/tensor_view.h"

namespace mica::cpu {

inline constexpr int64_t kScanColumns = 1024;  // the widest block of columns

// Strides in bytes, of either sign.
struct Scan {
  int outputs;
  void (*row)(const char* x, int64_t stride, char* const* out, const int64_t* out_strides, int64_t n);
  // `columns` contiguous elements in each of n rows, scanned side by side down the rows.
  void (*columns)(const char* x, int64_t row_stride, char* const* out, const int64_t* out_row_strides, int64_t n,
                  int64_t columns);
  // Two rows at once, with the numbers that `row` gives for each; null where that is no faster.
  void (*two_rows)(const char* const* x, int64_t stride, char* const* out, int64_t out_stride, int64_t n) = nullptr;
};

void run_scan(const Scan& scan, const TensorView* const* outputs, const TensorView& self, int64_t dim);

}  // namespace mica::cpu
