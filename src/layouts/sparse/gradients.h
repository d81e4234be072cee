// Functions that the derivatives of ops/layers/sparse.toml call.
#pragma once

#include <optional>

#include "mica/tensor.h"

namespace mica::formulas {

// The elements of `grad`, dense or sparse, at the indices of `pattern`, in the order of its values.
Tensor sparse_values_at(const Tensor& grad, const Tensor& pattern);
Tensor sparse_values_backward(const Tensor& grad, const Tensor& self);
Tensor sparse_to_dense_backward(const Tensor& grad, const Tensor& self, std::optional<bool> masked_grad);
Tensor sparse_convert_backward(const Tensor& grad, const Tensor& self);
Tensor sparse_mask_backward(const Tensor& grad, const Tensor& self);
Tensor sparse_mm_grad_sparse(const Tensor& grad, const Tensor& mat1, const Tensor& mat2, bool masked);
Tensor sparse_mm_grad_dense(const Tensor& grad, const Tensor& mat1);
Tensor sparse_sparse_grad_left(const Tensor& grad, const Tensor& mat1, const Tensor& mat2);
Tensor sparse_sparse_grad_right(const Tensor& grad, const Tensor& mat1, const Tensor& mat2);
// `values` at the pattern's indices (transposed or not) times a dense matrix.
Tensor sparse_mm_product(const Tensor& values, const Tensor& pattern, const Tensor& dense, bool transposed);

}  // namespace mica::formulas
