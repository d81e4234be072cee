// Finds which dimensions a reduction takes away, and what is left.
#pragma once

#include "core/geometry.h"
#include "core/out.h"
#include "mica/tensor.h"

namespace mica::shapes {

// A set of dimensions, with one bit for each.
inline constexpr uint64_t kAllDims = ~uint64_t{0};

inline void check_dims_fit(int64_t ndim) {
  MICA_CHECK(ndim <= 64, "only tensors with up to 64 dims are supported: this one has ", ndim);
}

// No list and, for most operations, an empty one mean all dimensions.
inline uint64_t reduced_dims(OptionalIntArrayRef dim, int64_t ndim, bool empty_is_all = true) {
  if (!dim || (dim->empty() && empty_is_all)) return kAllDims;
  check_dims_fit(ndim);
  uint64_t bits = 0;
  for (int64_t d : wrap_dims(*dim, ndim)) bits |= uint64_t{1} << d;
  return bits;
}

inline uint64_t reduced_dim(int64_t dim, int64_t ndim) {
  check_dims_fit(ndim);
  return uint64_t{1} << wrap_dim(dim, ndim);
}

inline DimVector reduced_sizes(const Tensor& self, uint64_t dims, bool keepdim) {
  DimVector sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool reduced = dims >> d & 1;
    if (!reduced || keepdim) sizes.push_back(reduced ? 1 : self.sizes()[d]);
  }
  return sizes;
}

// How many elements meet in one output.
inline int64_t reduced_count(const Tensor& self, uint64_t dims) {
  int64_t count = 1;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (dims >> d & 1) count *= self.sizes()[d];
  return count;
}

// A reduction without an identity cannot start from nothing.
void check_not_empty(const char* op, const Tensor& self, uint64_t dims);
// Checks an out= into which results are not cast.
void check_out_dtype(const Out& out, DType wanted);

}  // namespace mica::shapes
