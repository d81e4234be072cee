// Derivatives of decompositions. A dot over a matrix is its change, a grad the conjugate of the derivative of a real
// number with respect to it; <x, y> is the real part of the sum of conj(x) y.
#include <algorithm>

#include "autograd/formulas/linalg.h"
#include "mica/generated/layers/decompositions.h"
#include "mica/generated/layers/linear_systems.h"
#include "mica/ops.h"

namespace mica::formulas {

namespace {

Tensor diagonal_of(const Tensor& a) { return a.diagonal(0, -2, -1); }
Tensor as_diagonal(const Tensor& values) { return diag_embed(values); }

// i times the imaginary part of the diagonal, as a matrix; nothing for real matrices.
Tensor imaginary_diagonal(const Tensor& a) {
  const Tensor d = diagonal_of(a);
  const Tensor part = imag(d);
  return as_diagonal(complex(zeros_like(part), part));
}

// Differences of all pairs, j minus i, with ones where a number meets itself.
Tensor gaps(const Tensor& values) {
  const Tensor differences = values.unsqueeze(-2) - values.unsqueeze(-1);
  return differences + eye(values.size(-1), values.options());
}

// The eigenvectors of a complex matrix are known up to a phase each: a loss must not depend on it.
void check_phase(const Tensor& products, const char* op, const char* what) {
  if (products.is_meta() || products.numel() == 0) return;
  NoGradGuard guard;
  const Tensor imaginary = imag(diagonal_of(products.resolve_conj())).abs();
  const double found = imaginary.max().item<double>();
  const double scale = std::max(1.0, products.abs().max().item<double>());
  const double allowed = to_real(products.dtype()) == DType::Float64 ? 1e-2 : 1e-1;
  MICA_CHECK(found <= allowed * scale, op, ": The ", what,
             " in the complex case are specified up to multiplication by e^{i phi}. The specified loss function "
             "depends on this quantity, so it is ill-defined.");
}

}  // namespace

Tensor cholesky_backward(const Tensor& grad, bool upper, const Tensor& factor) {
  const Tensor l = upper ? factor.mH() : factor, g = upper ? grad.mH() : grad;
  const Tensor product = matmul(l.mH(), g).tril();
  const Tensor symmetric = (product + product.tril(-1).mH()) * Scalar(0.5);
  const Tensor half = linalg_solve_triangular(l.mH(), symmetric, true, true, false);
  return linalg_solve_triangular(l, half, false, false, false);
}

Tensor lu_unpack_backward(const Tensor& grad_l, const Tensor& grad_u, IntArrayRef sizes, const TensorOptions& options) {
  const int64_t m = sizes[sizes.size() - 2], n = sizes[sizes.size() - 1], k = std::min(m, n);
  Tensor result;
  if (grad_l.defined()) result = constant_pad_nd(grad_l.tril(-1), {0, n - k, 0, 0});
  if (grad_u.defined()) {
    const Tensor upper = constant_pad_nd(grad_u.triu(), {0, 0, 0, m - k});
    result = result.defined() ? result + upper : upper;
  }
  return result.defined() ? result : zeros(sizes, options);
}

// With A = P L U and X = L^-1 P^T A' U^-1 for a change A' of the square part, L^-1 L' is what is below X's diagonal and
// U' U^-1 the rest; what lies right of it or below it follows linearly.
Tensor lu_factor_backward(const Tensor& grad, const Tensor& factors, const Tensor& pivots) {
  const auto [p, l, u] = lu_unpack(factors, pivots, true, true);
  const int64_t m = factors.size(-2), n = factors.size(-1), k = std::min(m, n);
  const Tensor grad_l = grad.narrow(-1, 0, k).tril(-1), grad_u = grad.narrow(-2, 0, k).triu();
  const Tensor l1 = l.narrow(-2, 0, k), u1 = u.narrow(-1, 0, k);
  const Tensor gl1 = grad_l.narrow(-2, 0, k), gu1 = grad_u.narrow(-1, 0, k);
  Tensor lower = matmul(l1.mH(), gl1), upper = matmul(gu1, u1.mH());
  Tensor rest;
  if (m < n) {
    const Tensor u2 = u.narrow(-1, k, n - k), gu2 = grad_u.narrow(-1, k, n - k);
    lower = lower - matmul(gu2, u2.mH());
    rest = gu2;
  } else if (m > n) {
    const Tensor l2 = l.narrow(-2, k, m - k), gl2 = grad_l.narrow(-2, k, m - k);
    upper = upper - matmul(l2.mH(), gl2);
    rest = gl2;
  }
  Tensor inner = linalg_solve_triangular(u1.mH(), lower.tril(-1) + upper.triu(), false, false, false);
  if (m < n) {
    const Tensor parts[] = {inner, rest};
    inner = cat(TensorList(parts, 2), -1);
  }
  Tensor result = linalg_solve_triangular(l1.mH(), inner, true, true, true);
  if (m > n) {
    const Tensor parts[] = {result, linalg_solve_triangular(u1.mH(), rest, false, false, false)};
    result = cat(TensorList(parts, 2), -2);
  }
  return matmul(p, result);
}

// With X = Q^H A' R^-1, the skew Q^H Q' has X's lower triangle (and the imaginary part of its diagonal), R' R^-1 the
// rest.
Tensor linalg_qr_backward(const Tensor& grad_q, const Tensor& grad_r, const Tensor& q, const Tensor& r,
                          std::string_view mode) {
  MICA_CHECK(mode != "r",
             "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
             "linalg.qr(A, mode='reduced') if you are going to require gradients of this function.");
  const int64_t m = q.size(-2), n = r.size(-1);
  MICA_CHECK(mode == "reduced" || m <= n,
             "The QR decomposition is not differentiable when mode='complete' and nrows > ncols.");
  if (m >= n) {
    Tensor product;
    if (grad_r.defined()) product = matmul(grad_r, r.mH());
    if (grad_q.defined()) {
      const Tensor other = matmul(q.mH(), grad_q);
      product = product.defined() ? product - other : -other;
    }
    Tensor symmetric = product.triu(1);
    const Tensor d = diagonal_of(product);
    symmetric = symmetric + symmetric.mH() + as_diagonal(d.is_complex() ? real(d).to(d.dtype()) : d);
    Tensor result = matmul(q, symmetric);
    if (grad_q.defined()) result = result + grad_q;
    return linalg_solve_triangular(r.mH(), result, false, false, false);
  }
  const Tensor r1 = r.narrow(-1, 0, m);
  Tensor skew;  // Q^H grad_q - grad_r R^H, whose skew part is used
  if (grad_q.defined()) skew = matmul(q.mH(), grad_q);
  if (grad_r.defined()) {
    const Tensor other = matmul(grad_r, r.mH());
    skew = skew.defined() ? skew - other : -other;
  }
  Tensor inner = (skew - skew.mH()).tril(-1);
  if (skew.is_complex()) inner = inner + imaginary_diagonal(skew);
  if (grad_r.defined()) inner = inner + matmul(grad_r.narrow(-1, 0, m), r1.mH());
  const Tensor first = linalg_solve_triangular(r1.mH(), inner, false, false, false);
  const Tensor second = grad_r.defined() ? grad_r.narrow(-1, m, n - m) : zeros_like(r.narrow(-1, m, n - m));
  const Tensor parts[] = {first, second};
  return matmul(q, cat(TensorList(parts, 2), -1));
}

Tensor svd_backward(const Tensor& given_u, const Tensor& grad_s, const Tensor& given_vh, const Tensor& all_u,
                    const Tensor& s, const Tensor& all_vh, bool full_matrices) {
  const int64_t k = s.size(-1);
  MICA_CHECK(all_vh.dim() >= 2, "svd_backward: cannot compute the gradient without the singular vectors");
  const Tensor u = full_matrices ? all_u.narrow(-1, 0, k) : all_u,
               vh = full_matrices ? all_vh.narrow(-2, 0, k) : all_vh;
  const Tensor grad_u = full_matrices && given_u.defined() ? given_u.narrow(-1, 0, k) : given_u;
  const Tensor grad_vh = full_matrices && given_vh.defined() ? given_vh.narrow(-2, 0, k) : given_vh;
  const int64_t m = u.size(-2), n = vh.size(-1);
  const Tensor scale = s.to(u.dtype());
  if (!grad_u.defined() && !grad_vh.defined())
    return m >= n ? matmul(u, grad_s.to(u.dtype()).unsqueeze(-1) * vh)
                  : matmul(u * grad_s.to(u.dtype()).unsqueeze(-2), vh);
  const auto skew = [](const Tensor& x) { return x - x.mH(); };
  const Tensor squares = scale * scale, gap = gaps(squares);
  Tensor inner, u_skew, v_skew;
  if (grad_u.defined()) u_skew = skew(matmul(u.mH(), grad_u));
  if (grad_vh.defined()) v_skew = skew(matmul(vh, grad_vh.mH()));
  if (u.is_complex()) {
    Tensor phases = u_skew.defined() && v_skew.defined() ? u_skew + v_skew : u_skew.defined() ? u_skew : v_skew;
    check_phase(phases, "svd_backward", "singular vectors");
  }
  if (u_skew.defined()) inner = u_skew / gap * scale.unsqueeze(-2);
  if (v_skew.defined()) {
    const Tensor other = scale.unsqueeze(-1) * (v_skew / gap);
    inner = inner.defined() ? inner + other : other;
  }
  if (grad_s.defined()) inner = inner + as_diagonal(grad_s.to(u.dtype()));
  if (u.is_complex() && u_skew.defined() && v_skew.defined())
    inner = inner + as_diagonal(diagonal_of(u_skew) / (scale * Scalar(2)));
  Tensor left = matmul(u, inner);
  if (m > k && grad_u.defined()) {
    const Tensor outside = grad_u / scale.unsqueeze(-2);
    left = left + outside - matmul(u, matmul(u.mH(), outside));
  }
  Tensor result = matmul(left, vh);
  if (n > k && grad_vh.defined()) {
    const Tensor outside = grad_vh / scale.unsqueeze(-1);
    result = result + matmul(u, outside - matmul(matmul(outside, vh.mH()), vh));
  }
  return result;
}

Tensor linalg_eigh_backward(const Tensor& grad_values, const Tensor& grad_vectors, const Tensor& values,
                            const Tensor& vectors) {
  const DType dtype = vectors.dtype();
  MICA_CHECK(vectors.dim() >= 2, "linalg_eigh_backward: cannot compute the gradient without the eigenvectors");
  if (!grad_vectors.defined()) return matmul(vectors * grad_values.to(dtype).unsqueeze(-2), vectors.mH());
  const Tensor products = matmul(vectors.mH(), grad_vectors);
  if (vectors.is_complex()) check_phase(products, "linalg_eigh_backward", "eigenvectors");
  Tensor inner = products / gaps(values).to(dtype);
  inner = inner - as_diagonal(diagonal_of(inner));
  if (grad_values.defined()) inner = inner + as_diagonal(grad_values.to(dtype));
  return matmul(vectors, matmul(inner, vectors.mH()));
}

Tensor linalg_eig_backward(const Tensor& grad_values, const Tensor& grad_vectors, const Tensor& values,
                           const Tensor& vectors) {
  if (!grad_vectors.defined()) return linalg_solve(vectors.mH(), grad_values.unsqueeze(-1) * vectors.mH());
  const Tensor products = matmul(vectors.mH(), grad_vectors);
  check_phase(products, "linalg_eig_backward", "eigenvectors");
  // Vectors have length one, so they do not change along themselves.
  const Tensor along = real(diagonal_of(products)).to(vectors.dtype());
  const Tensor across = products - matmul(vectors.mH(), vectors * along.unsqueeze(-2));
  Tensor inner = across / gaps(values.conj().resolve_conj());
  inner = inner - as_diagonal(diagonal_of(inner));
  if (grad_values.defined()) inner = inner + as_diagonal(grad_values);
  return linalg_solve(vectors.mH(), matmul(inner, vectors.mH()));
}

}  // namespace mica::formulas
