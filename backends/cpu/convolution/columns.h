// Sliding blocks of images as matrices. Where the image is contiguous, the matrix has a row for each element of a
// block, by channel and then tap. Where channels are last, it has a row for each position, by tap and then channel.
#pragma once

#include "backends/cpu/convolution/problem.h"

namespace mica::cpu::convolution {

struct Columns {
  char* data;
  int64_t first, count;  // the positions of the output that it has
  bool channels_last;    // whether rows are positions
  int64_t row = 0;       // the length of an element's row, which columns of several images may share; 0: `count`

  int64_t block_stride(int64_t depth) const { return channels_last ? depth : 1; }   // from one position to the next
  int64_t element_stride() const { return channels_last ? 1 : row ? row : count; }  // from one element to the next
};

// Copies the blocks of channels [begin, end) of `images` (one image of one group) around the positions of `columns`.
void gather_columns(const Problem& p, const char* images, int64_t begin, int64_t end, const Columns& columns);
// The adjoint: adds the blocks to the image, in the dtypes in which sums are made: float32, float64, int64 and complex.
void scatter_columns(const Problem& p, char* images, int64_t begin, int64_t end, const Columns& columns);

// The weight with the elements of a filter one after the other, in the order of the columns. It may have that order
// already.
bool filters_are_ordered(const Problem& p, bool channels_last);
void order_filters(const Problem& p, bool channels_last, char* ordered);          // all groups
void restore_filters(const Problem& p, bool channels_last, const char* ordered);  // back into the weight

}  // namespace mica::cpu::convolution
