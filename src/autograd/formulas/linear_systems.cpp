// Derivatives of inverses, determinants, systems and functions of matrices. Where a derivative of the derivative may be
// asked for, it is written in terms of the input instead of the factors that the forward has left.
#include <limits>

#include "autograd/formulas/linalg.h"
#include "mica/core/dispatch.h"
#include "mica/generated/layers/decompositions.h"
#include "mica/generated/layers/linear_systems.h"
#include "mica/ops.h"

namespace mica::formulas {

namespace {

Tensor conjugate(const Tensor& t) { return t.is_complex() ? t.conj() : t; }

// A^-H diag(values), with the factors of A at hand.
Tensor solve_diagonal(const Tensor& a, const Tensor& lu, const Tensor& pivots, const Tensor& values) {
  const Tensor right = diag_embed(values.unsqueeze(-1).expand(pivots.sizes()));
  if (grad_enabled()) return linalg_solve(a.mH(), right);
  const Tensor diagonal = lu.diagonal(0, -2, -1);
  const double tiny = to_real(a.dtype()) == DType::Float64 ? std::numeric_limits<double>::epsilon()
                                                           : double(std::numeric_limits<float>::epsilon());
  // The determinant is a smooth function, so its derivative at a singular matrix is taken at one close by.
  const Tensor nudge = eq(diagonal, Scalar(0)).to(lu.dtype()) * Scalar(tiny);
  return linalg_lu_solve(lu + diag_embed(nudge), pivots, right, true, true);
}

// det A = det(U) det(Vh) prod(S): of a singular matrix, the products of all singular values but one remain.
Tensor singular_det_backward(const Tensor& grad, const Tensor& a) {
  const auto [u, s, vh] = linalg_svd(a, true);
  const Tensor factor = grad * conjugate(linalg_det(u) * linalg_det(vh));
  const int64_t n = s.size(-1);
  std::vector<Tensor> others;
  for (int64_t i = 0; i < n; ++i) {
    const Tensor parts[] = {s.narrow(-1, 0, i), s.narrow(-1, i + 1, n - i - 1)};
    others.push_back(cat(TensorList(parts, 2), -1).prod(-1));
  }
  const Tensor weights = stack(TensorList(others), -1).to(a.dtype()) * factor.unsqueeze(-1);
  return matmul(u * weights.unsqueeze(-2), vh);
}

}  // namespace

Tensor inverse_backward(const Tensor& grad, const Tensor& inverse) {
  const Tensor adjoint = inverse.mH();
  return -matmul(adjoint, matmul(grad, adjoint));
}

Tensor linalg_det_backward(const Tensor& grad, const Tensor& det, const Tensor& a, const Tensor& lu,
                           const Tensor& pivots) {
  if (!grad.defined()) return {};
  if (a.numel() == 0) return zeros_like(a);
  if (!grad_enabled()) {
    Tensor value = det;
    const Tensor diagonal = lu.diagonal(0, -2, -1);
    const Tensor zero = eq(diagonal, Scalar(0));
    if (dispatch::active || any(zero).item<bool>()) {  // a graph has to hold for singular matrices too
      const double tiny = to_real(a.dtype()) == DType::Float64 ? std::numeric_limits<double>::epsilon()
                                                               : double(std::numeric_limits<float>::epsilon());
      const Tensor nudged = where(zero, full_like(diagonal, Scalar(tiny)), diagonal);
      const Tensor places = arange(Scalar(1), Scalar(pivots.size(-1) + 1), pivots.options());
      const Tensor sign = Scalar(1) - Scalar(2) * ne(pivots, places).sum(-1).remainder(Scalar(2));
      value = nudged.prod(-1) * sign.to(a.dtype());
    }
    return solve_diagonal(a, lu, pivots, grad * conjugate(value));
  }
  const Tensor singular = eq(det, Scalar(0));
  if (!dispatch::active && !any(singular).item<bool>()) return solve_diagonal(a, lu, pivots, grad * conjugate(det));
  const Tensor mask = singular.unsqueeze(-1).unsqueeze(-1);
  if (!dispatch::active && all(singular).item<bool>()) return singular_det_backward(grad, a);
  const Tensor one = eye(a.size(-1), a.options());
  const Tensor regular = solve_diagonal(where(mask, one, a), lu, pivots, grad * conjugate(det));
  return where(mask, singular_det_backward(grad, a), regular);
}

// d log|det A| = Re tr(A^-1 dA), and the phase of the determinant turns by the imaginary part.
Tensor slogdet_backward(const Tensor& grad_sign, const Tensor& grad_log, const Tensor& a, const Tensor& sign,
                        const Tensor& lu, const Tensor& pivots) {
  if (a.numel() == 0) return zeros_like(a);
  Tensor weight;
  if (grad_log.defined()) weight = grad_log.to(a.dtype());
  if (grad_sign.defined() && a.is_complex()) {
    const Tensor turn = imag((grad_sign.conj() * sign).resolve_conj());
    const Tensor part = complex(zeros_like(turn), -turn);
    weight = weight.defined() ? weight + part : part;
  }
  if (!weight.defined()) return zeros_like(a);
  return solve_diagonal(a, lu, pivots, weight);
}

Pair linalg_solve_backward(const Tensor& grad, const Tensor& x, const Tensor& a, IntArrayRef b_sizes, const Tensor& lu,
                           const Tensor& pivots, bool left, std::array<bool, 2> needs) {
  if (!grad.defined()) return {};
  const int64_t b_dim = static_cast<int64_t>(b_sizes.size());
  const bool vector = b_dim == 1 || (a.dim() - 1 == b_dim && b_sizes == IntArrayRef(a.sizes().begin(), size_t(b_dim)));
  const Tensor g = vector ? grad.unsqueeze(-1) : grad;
  const Tensor grad_b = grad_enabled() ? linalg_solve(a.mH(), g, left) : linalg_lu_solve(lu, pivots, g, left, true);
  Tensor grad_a;
  if (needs[0]) {
    const Tensor found = vector ? x.unsqueeze(-1) : x;
    grad_a = left ? -matmul(grad_b, found.mH()) : -matmul(found.mH(), grad_b);
  }
  return {grad_a, needs[1] ? (vector ? grad_b.squeeze(-1) : grad_b) : Tensor()};
}

// A = P L U: the gradient of A, and from it those of the factors.
Tensor lu_solve_factor_backward(const Tensor& grad, const Tensor& x, const Tensor& lu, const Tensor& pivots, bool left,
                                bool adjoint) {
  const auto [p, l, u] = lu_unpack(lu, pivots, true, true);
  const Tensor grad_b = linalg_lu_solve(lu, pivots, grad, left, !adjoint);
  Tensor grad_a = left ? -matmul(grad_b, x.mH()) : -matmul(x.mH(), grad_b);
  if (adjoint) grad_a = grad_a.mH();
  const Tensor permuted = matmul(p.mT(), grad_a);
  return matmul(permuted, u.mH()).tril(-1) + matmul(l.mH(), permuted).triu();
}

Pair solve_triangular_backward(const Tensor& grad, const Tensor& a, const Tensor& x, bool upper, bool left, bool unit,
                               std::array<bool, 2> needs) {
  const Tensor grad_b = linalg_solve_triangular(a.mH(), grad, !upper, left, unit);
  Tensor grad_a;
  if (needs[0]) {
    grad_a = left ? -matmul(grad_b, x.mH()) : -matmul(x.mH(), grad_b);
    grad_a = upper ? grad_a.triu(unit ? 1 : 0) : grad_a.tril(unit ? -1 : 0);
  }
  return {grad_a, needs[1] ? grad_b : Tensor()};
}

Pair cholesky_solve_backward(const Tensor& grad, const Tensor&, const Tensor& factor, const Tensor& x, bool upper,
                             std::array<bool, 2> needs) {
  const Tensor grad_b = cholesky_solve(grad, factor, upper);
  Tensor grad_factor;
  if (needs[1]) {
    Tensor common = matmul(grad_b, x.mH());
    common = common + common.mH();
    grad_factor = upper ? -matmul(factor, common) : -matmul(common, factor);
  }
  return {needs[0] ? grad_b : Tensor(), grad_factor};
}

Tensor cholesky_inverse_backward(const Tensor& grad, const Tensor& factor, bool upper, const Tensor& inverse) {
  const Tensor common = matmul(inverse, matmul(grad + grad.mH(), inverse));
  return upper ? -matmul(factor, common) : -matmul(common, factor);
}

Pair lstsq_backward(const Tensor& grad, const Tensor& grad_residuals, const Tensor& a, const Tensor& b, const Tensor& x,
                    const Tensor& residuals, std::array<bool, 2> needs) {
  Tensor grad_a, grad_b;
  const auto add = [](Tensor& sum, const Tensor& term) { sum = sum.defined() ? sum + term : term; };
  if (grad.defined()) {
    const Tensor inverse = linalg_pinv(a, std::optional<double>(), std::optional<double>(), false);
    if (needs[0]) add(grad_a, pinv_backward(matmul(grad, b.mH()), inverse, a));
    if (needs[1]) add(grad_b, matmul(inverse.mH(), grad));
  }
  if (grad_residuals.defined() && residuals.numel() > 0) {
    const Tensor rest = (b - matmul(a, x)) * grad_residuals.to(a.dtype()).unsqueeze(-2) * Scalar(2);
    if (needs[0]) add(grad_a, -matmul(rest, x.mH()));
    if (needs[1]) add(grad_b, rest);
  }
  return {grad_a, grad_b};
}

Tensor pinv_backward(const Tensor& grad, const Tensor& pinv, const Tensor& a) {
  const Tensor pinv_h = pinv.mH(), grad_h = grad.mH();
  if (a.size(-2) <= a.size(-1)) {
    const Tensor k = matmul(grad_h, pinv), k_pinv_h = matmul(k, pinv_h);
    return -matmul(pinv, k).mH() + k_pinv_h - matmul(matmul(a, pinv), k_pinv_h) +
           matmul(matmul(pinv_h, pinv), grad_h - matmul(k, a));
  }
  const Tensor k = matmul(pinv, grad_h), pinv_h_k = matmul(pinv_h, k);
  return -matmul(k, pinv).mH() + matmul(matmul(grad_h - matmul(a, k), pinv), pinv_h) + pinv_h_k -
         matmul(matmul(pinv_h_k, pinv), a);
}

// The exponential of [[A^H, G], [0, A^H]] has the gradient in its upper right part.
Tensor matrix_exp_backward(const Tensor& grad, const Tensor& a) {
  const int64_t n = a.size(-1);
  const Tensor adjoint = a.mH(), g = grad.expand(a.sizes());
  const Tensor top[] = {adjoint, g}, bottom[] = {zeros_like(adjoint), adjoint};
  const Tensor rows[] = {cat(TensorList(top, 2), -1), cat(TensorList(bottom, 2), -1)};
  return linalg_matrix_exp(cat(TensorList(rows, 2), -2)).narrow(-2, 0, n).narrow(-1, n, n);
}

}  // namespace mica::formulas
