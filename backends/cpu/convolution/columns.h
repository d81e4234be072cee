// Sliding blocks of images as matrices. A block's elements are ordered by channel and tap where the image is
// contiguous (one row per element of the block), by tap and channel where channels are last (one row per position).
#pragma once

#include "backends/cpu/convolution/problem.h"

namespace mica::cpu::convolution {

struct Columns {
  char* data;
  int64_t first, count;  // positions of the output
  bool channels_last;    // rows are positions
  int64_t row = 0;       // of an element, where columns of several images lie side by side in it; 0: `count`

  int64_t block_stride(int64_t depth) const { return channels_last ? depth : 1; }   // from one position to the next
  int64_t element_stride() const { return channels_last ? 1 : row ? row : count; }  // from one element to the next
};

// Copies the blocks of channels [begin, end) of `images` (one image of one group) around the positions of `columns`.
void gather_columns(const Problem& p, const char* images, int64_t begin, int64_t end, const Columns& columns);
// The adjoint: adds the blocks to the image. For the dtypes that are summed: float32, float64, int64 and complex.
void scatter_columns(const Problem& p, char* images, int64_t begin, int64_t end, const Columns& columns);

// The weight with a filter's elements in the order of the columns, one after another; in place where they lie so.
bool filters_are_ordered(const Problem& p, bool channels_last);
void order_filters(const Problem& p, bool channels_last, char* ordered);          // all groups
void restore_filters(const Problem& p, bool channels_last, const char* ordered);  // back into the weight

}  // namespace mica::cpu::convolution
