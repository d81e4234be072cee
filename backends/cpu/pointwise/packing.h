// Copies operands that are not contiguous in a loop's order into a buffer and back.
#pragma once

#include "mica/backend/pointwise_loop.h"

namespace mica::cpu {

// Copies elements [begin, begin + count) of an operand, in the loop's order, to `to`; and back.
void gather(const PointwiseLoop& loop, int operand, int64_t begin, int64_t count, char* to);
void scatter(const PointwiseLoop& loop, int operand, int64_t begin, int64_t count, const char* from);

// Copies a strided row of n elements of `size` bytes.
void copy_row(int64_t size, char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n);

// Copies a rectangle of `rows` by `columns` elements, with strides in bytes. Chooses the transposing copy where only
// that reads and writes whole cache lines.
void copy_rectangle(int64_t size, char* to, int64_t to_row, int64_t to_column, const char* from, int64_t from_row,
                    int64_t from_column, int64_t rows, int64_t columns);

}  // namespace mica::cpu
