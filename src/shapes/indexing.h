// Functions that operations of the index family share: they make indices plain, check them, and arrange them for the
// kernels.
#pragma once

#include <vector>

#include "core/geometry.h"
#include "mica/backend.h"
#include "mica/ops.h"
#include "mica/parallel.h"

namespace mica {

// An index as kernels want it: contiguous int64 on the tensor's device.
Tensor plain_index(const Tensor& index, Device device);

// The first entry of a plain index outside [low, high). Nothing where its values cannot be seen from here, as on
// devices other than the CPU.
std::optional<int64_t> index_outside(const Tensor& index, int64_t low, int64_t high);

// A 0-dim tensor as a one-dimensional one over the same memory.
inline Tensor at_least_1d(const Tensor& t) { return t.dim() ? t : t.view({1}); }

// x[...] with tensors: `self` with its indexed dimensions side by side from `first` on, and one plain index of `shape`
// for each of them.
struct AdvancedIndex {
  AdvancedIndex(const Tensor& self, TensorList indices);

  Tensor self;
  int64_t first = 0;
  std::vector<Tensor> indices;
  DimVector shape;
  DimVector result_sizes;

  std::vector<const TensorView*> views() const;
};

// The mask, if indexing with `indices` is selecting elements with a single mask over all of self's dimensions; else
// null.
const Tensor* whole_mask(const Tensor& self, TensorList indices);
void check_mask_shape(const Tensor& self, const Tensor& mask, int64_t first);
void warn_byte_mask();

// How many nonzero elements come before each of several equal chunks; the last entry is their total.
struct NonzeroCount {
  NonzeroCount(const char* op, const Tensor& self);
  Tensor offsets;
  int64_t total;
};

// The arguments of index_add_ and index_reduce_; returns the dimension counted from the front.
int64_t check_index_reduction(const char* op, const Tensor& self, int64_t dim, const Tensor& index,
                              const Tensor& source);

bool is_expandable_to(IntArrayRef sizes, IntArrayRef wanted);

// For in-place operations: a copy of `read` where it shares memory with `written`.
Tensor apart_from(const Tensor& read, const Tensor& written);

// Throws torch's error where a dense tensor that is read lies in the memory of the one that is written.
void check_apart(const Tensor& written, const Tensor& read);
// Throws torch's error where a number does not fit the dtype.
void check_number_fits(const Scalar& value, DType dtype);
// A number as one element of the dtype: floats of 16 bits turn into infinity what they cannot hold, as torch's tensors
// of one element do; other dtypes refuse it.
Scalar as_one_element(const Scalar& value, DType dtype);

}  // namespace mica
