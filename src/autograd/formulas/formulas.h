// The functions that derivative expressions in ops/*.toml call, when a formula does not fit a line.
#pragma once

#include <array>
#include <tuple>

#include "autograd/formulas/indexing.h"
#include "autograd/formulas/pointwise.h"
#include "autograd/formulas/reduction.h"
#include "autograd/formulas/sorting.h"
#include "mica/autograd.h"
#include "mica/ops.h"

namespace mica::formulas {

// shared
inline Tensor conj_of(const Tensor& t) { return t.is_complex() ? t.conj() : t; }
inline Scalar conj_of(const Scalar& s) { return s.conj(); }
Tensor scaled(const Tensor& grad, const Scalar& factor);  // grad itself when the factor is one
int64_t unsqueezed_dim(int64_t dim, int64_t ndim);        // where unsqueeze(dim) put the new dimension
[[noreturn]] Tensor not_implemented(const char* op, const char* argument);

// arithmetic
Tensor div_other_backward(const Tensor& grad, const Tensor& self, const Tensor& other);

// copies
Tensor copy_src_backward(const Tensor& grad, const TensorOptions& src);

// views
Tensor as_strided_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, int64_t base_offset,
                           IntArrayRef size, IntArrayRef stride, std::optional<int64_t> offset);
Tensor select_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t index);
Tensor slice_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, std::optional<int64_t> start,
                      std::optional<int64_t> end, int64_t step);
Tensor permute_backward(const Tensor& grad, IntArrayRef dims);
Tensor unfold_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t size, int64_t step);
Tensor diagonal_backward(const Tensor& grad, IntArrayRef sizes, int64_t offset, int64_t dim1, int64_t dim2);
Tensor unbind_backward(const TensorVec& grads, int64_t dim, IntArrayRef sizes, const TensorOptions& options);
Tensor split_backward(const TensorVec& grads, int64_t split_size, int64_t dim, IntArrayRef sizes,
                      const TensorOptions& options);
Tensor split_with_sizes_backward(const TensorVec& grads, IntArrayRef split_sizes, int64_t dim, IntArrayRef sizes,
                                 const TensorOptions& options);

// joining
TensorVec cat_backward(const Tensor& grad, const std::vector<DimVector>& sizes, const std::vector<DType>& dtypes,
                       int64_t dim);

// reductions
// A reduced gradient made broadcastable against the input again.
Tensor restore_dims(const Tensor& grad, IntArrayRef sizes, OptionalIntArrayRef dim, bool keepdim);
Tensor sum_backward(const Tensor& grad, IntArrayRef sizes, OptionalIntArrayRef dim, bool keepdim);

}  // namespace mica::formulas
