// Making tensors below the level of operations: no autograd, no arguments to check.
#pragma once

#include "mica/tensor.h"

namespace mica {

// With `promised`, memory is allocated when its contents are computed (mica/core/recording.h).
Tensor empty_contiguous(IntArrayRef sizes, DType dtype, Device device, bool promised = false);
Tensor empty_with_strides(IntArrayRef sizes, IntArrayRef strides, DType dtype, Device device, bool promised = false);
// Keeps a dense, permuted layout.
Tensor empty_dense_like(const Tensor& t, DType dtype, Device device, bool promised = false);

// A tensor that shares `self`'s storage, and its lazy bits. Sizes and strides are taken as they are.
Tensor make_view(const Tensor& self, IntArrayRef sizes, IntArrayRef strides, int64_t offset);
Tensor make_contiguous_view(const Tensor& self, IntArrayRef sizes, int64_t offset);
// The same bytes as elements of another dtype. The result is not quantized, even where `self` is.
Tensor make_view_as(const Tensor& self, DType dtype, IntArrayRef sizes, IntArrayRef strides, int64_t offset);
Tensor alias_of(const Tensor& self);  // the same geometry, no history

// A tensor over memory that somebody else owns, whose element at index zero is `first`; strides of either sign. The
// deleter gets the context when the last reference to the memory goes.
Tensor tensor_over(void* first, DType dtype, Device device, IntArrayRef sizes, IntArrayRef strides,
                   StorageImpl::Deleter deleter, void* context);

}  // namespace mica
