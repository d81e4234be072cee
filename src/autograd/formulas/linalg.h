// Derivatives of linear algebra.
#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "mica/autograd.h"
#include "mica/tensor.h"

namespace mica::formulas {

using Pair = std::tuple<Tensor, Tensor>;

Tensor cholesky_backward(const Tensor& grad, bool upper, const Tensor& factor);
Tensor lu_factor_backward(const Tensor& grad, const Tensor& factors, const Tensor& pivots);
Tensor lu_unpack_backward(const Tensor& grad_l, const Tensor& grad_u, IntArrayRef sizes, const TensorOptions& options);
Tensor linalg_qr_backward(const Tensor& grad_q, const Tensor& grad_r, const Tensor& q, const Tensor& r,
                          std::string_view mode);
Tensor svd_backward(const Tensor& grad_u, const Tensor& grad_s, const Tensor& grad_vh, const Tensor& u, const Tensor& s,
                    const Tensor& vh, bool full_matrices);
Tensor linalg_eigh_backward(const Tensor& grad_values, const Tensor& grad_vectors, const Tensor& values,
                            const Tensor& vectors);
Tensor linalg_eig_backward(const Tensor& grad_values, const Tensor& grad_vectors, const Tensor& values,
                           const Tensor& vectors);
Tensor inverse_backward(const Tensor& grad, const Tensor& inverse);
Tensor linalg_det_backward(const Tensor& grad, const Tensor& det, const Tensor& a, const Tensor& lu,
                           const Tensor& pivots);
Tensor slogdet_backward(const Tensor& grad_sign, const Tensor& grad_log, const Tensor& a, const Tensor& sign,
                        const Tensor& lu, const Tensor& pivots);
Pair linalg_solve_backward(const Tensor& grad, const Tensor& x, const Tensor& a, IntArrayRef b_sizes, const Tensor& lu,
                           const Tensor& pivots, bool left, std::array<bool, 2> needs);
Tensor lu_solve_factor_backward(const Tensor& grad, const Tensor& x, const Tensor& lu, const Tensor& pivots, bool left,
                                bool adjoint);
Pair solve_triangular_backward(const Tensor& grad, const Tensor& a, const Tensor& x, bool upper, bool left, bool unit,
                               std::array<bool, 2> needs);
Pair cholesky_solve_backward(const Tensor& grad, const Tensor& b, const Tensor& factor, const Tensor& x, bool upper,
                             std::array<bool, 2> needs);
Tensor cholesky_inverse_backward(const Tensor& grad, const Tensor& factor, bool upper, const Tensor& inverse);
Pair lstsq_backward(const Tensor& grad, const Tensor& grad_residuals, const Tensor& a, const Tensor& b, const Tensor& x,
                    const Tensor& residuals, std::array<bool, 2> needs);
Tensor pinv_backward(const Tensor& grad, const Tensor& pinv, const Tensor& a);
Tensor matrix_exp_backward(const Tensor& grad, const Tensor& a);

}  // namespace mica::formulas
