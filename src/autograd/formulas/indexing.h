// Derivatives of the index family.
#pragma once

#include <string_view>
#include <tuple>

#include "mica/ops.h"

namespace mica::formulas {

Tensor index_backward(const Tensor& grad, IntArrayRef sizes, TensorList indices);
Tensor index_put_self_backward(const Tensor& grad, TensorList indices, bool accumulate);
Tensor index_put_values_backward(const Tensor& grad, TensorList indices, IntArrayRef values_sizes);

// Slices of a dimension. The gradient with the slices that were overwritten set to zero:
Tensor index_zeroed(const Tensor& grad, int64_t dim, const Tensor& index);
Tensor index_select_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, const Tensor& index);
Tensor index_add_source_backward(const Tensor& grad, int64_t dim, const Tensor& index, IntArrayRef source_sizes,
                                 const Scalar& alpha);
Tensor index_copy_source_backward(const Tensor& grad, int64_t dim, const Tensor& index, IntArrayRef source_sizes);
std::tuple<Tensor, Tensor> index_reduce_backward(const Tensor& grad, const Tensor& self, int64_t dim,
                                                 const Tensor& index, const Tensor& source, std::string_view reduce,
                                                 bool include_self, const Tensor& result);

// One index per element. `src` may be larger than the index; the part that was not used has gradient zero.
Tensor gather_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, const Tensor& index, bool sparse_grad);
Tensor scatter_src_backward(const Tensor& grad, IntArrayRef src_sizes, int64_t dim, const Tensor& index);
std::tuple<Tensor, Tensor> scatter_reduce_backward(const Tensor& grad, const Tensor& self, int64_t dim,
                                                   const Tensor& index, const Tensor& src, std::string_view reduce,
                                                   bool include_self, const Tensor& result);
Tensor take_backward(const Tensor& grad, IntArrayRef sizes, const Tensor& index);

// Masks
Tensor masked_select_backward(const Tensor& grad, IntArrayRef sizes, const Tensor& mask);
Tensor masked_scatter_source_backward(const Tensor& grad, const Tensor& mask, IntArrayRef source_sizes);

// A view written into a copy
Tensor as_strided_scatter_self_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, int64_t offset,
                                        IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset);
Tensor as_strided_scatter_src_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, int64_t offset,
                                       IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset);

// Tables of rows
Tensor embedding_backward(const Tensor& grad, const Tensor& indices, IntArrayRef weight_sizes, int64_t padding_idx,
                          bool scale_grad_by_freq, bool sparse);
Tensor embedding_double_backward(const Tensor& grad, const Tensor& indices, int64_t padding_idx,
                                 bool scale_grad_by_freq);

}  // namespace mica::formulas
