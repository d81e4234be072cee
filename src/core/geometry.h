// Arithmetic on sizes and strides, apart from any tensor.
#pragma once

#include <optional>
#include <string>

#include "mica/core/array_ref.h"
#include "mica/core/options.h"

namespace mica {

int64_t count_elements(IntArrayRef sizes);  // throws where the product overflows or a size is negative
DimVector contiguous_strides(IntArrayRef sizes);
DimVector memory_format_strides(IntArrayRef sizes, MemoryFormat format);
bool is_row_major(IntArrayRef sizes, IntArrayRef strides);
bool is_channels_last(IntArrayRef sizes, IntArrayRef strides, MemoryFormat format);
bool is_non_overlapping_and_dense(IntArrayRef sizes, IntArrayRef strides);

// The strides of a dense tensor of `sizes` whose dimensions are ordered in memory as those of `strides`.
DimVector dense_strides_like(IntArrayRef sizes, IntArrayRef strides);

// Whether two different indices reach one element (an expanded tensor does).
bool has_internal_overlap(IntArrayRef sizes, IntArrayRef strides);

// The lowest and one past the highest element, relative to the element at index zero; {0, 0} when empty.
struct Extent {
  int64_t low, high;
};
Extent extent(IntArrayRef sizes, IntArrayRef strides);

// Bytes a storage must have to hold the geometry; throws on overflow.
int64_t storage_bytes_needed(IntArrayRef sizes, IntArrayRef strides, int64_t offset, int64_t element_size);

// The strides under which a tensor can be seen with other sizes without a copy, if there are any.
std::optional<DimVector> view_strides(IntArrayRef sizes, IntArrayRef strides, IntArrayRef new_sizes);
// Why view_strides has no answer: a sentence that names the dimension in the way.
std::string view_obstacle(IntArrayRef sizes, IntArrayRef strides, IntArrayRef new_sizes);

// Whether a shape says all its sizes and has that many elements.
inline bool has_elements(IntArrayRef shape, int64_t numel) {
  int64_t product = 1;
  bool valid = true;
  for (const int64_t n : shape) valid &= n >= 0 && !__builtin_mul_overflow(product, n, &product);
  return valid && product == numel;
}

// Replaces a single -1 by what the number of elements implies; torch's error for impossible shapes.
DimVector infer_size(IntArrayRef shape, int64_t numel);

DimVector broadcast_sizes(IntArrayRef a, IntArrayRef b);  // torch's error for shapes that do not match

// A dimension counted from the end when negative. A 0-dim tensor is taken as one-dimensional unless told otherwise.
int64_t wrap_unusual_dim(int64_t dim, int64_t ndim, bool wrap_scalar);
inline int64_t wrap_dim(int64_t dim, int64_t ndim, bool wrap_scalar = true) {
  const int64_t at = dim < 0 ? dim + ndim : dim;
  return static_cast<uint64_t>(at) < static_cast<uint64_t>(ndim) ? at : wrap_unusual_dim(dim, ndim, wrap_scalar);
}
DimVector wrap_dims(IntArrayRef dims, int64_t ndim);  // also refuses duplicates

}  // namespace mica
