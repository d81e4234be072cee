// Functions of matrices that are made of decompositions and products.
#include <cmath>
#include <limits>

#include "core/geometry.h"
#include "linalg/matrices.h"
#include "mica/autograd.h"
#include "mica/generated/layers/decompositions.h"
#include "mica/generated/layers/decompositions_implementations.h"
#include "mica/generated/layers/linalg.h"
#include "mica/generated/layers/linear_systems.h"
#include "mica/generated/layers/linear_systems_implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

using namespace linalg_rules;  // NOLINT

// ---- factors

Tensor linalg_cholesky(const Tensor& self, bool upper) {
  const auto [factor, codes] = mica::linalg_cholesky_ex(self, upper, false);
  check_info(codes, "linalg.cholesky");
  return factor;
}

Tensor cholesky(const Tensor& self, bool upper) {
  MICA_WARN_ONCE(
      "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a future PyTorch "
      "release.\nL = torch.cholesky(A)\nshould be replaced with\nL = torch.linalg.cholesky(A)\nand\n"
      "U = torch.cholesky(A, upper=True)\nshould be replaced with\nU = torch.linalg.cholesky(A).mH\n"
      "This transform will produce equivalent results for all valid (symmetric positive definite) inputs.");
  const auto [factor, codes] = mica::linalg_cholesky_ex(self, upper, false);
  check_info(codes, "cholesky");
  return factor;
}

std::tuple<Tensor, Tensor> linalg_lu_factor(const Tensor& A, bool pivot) {
  const auto [factors, rows, codes] = mica::linalg_lu_factor_ex(A, pivot, false);
  check_info(codes, "torch.linalg.lu_factor");
  return {factors, rows};
}

std::tuple<Tensor, Tensor, Tensor> _lu_with_info(const Tensor& self, bool pivot, bool) {
  return mica::linalg_lu_factor_ex(self, pivot, false);
}

std::tuple<Tensor, Tensor, Tensor> linalg_lu(const Tensor& A, bool pivot) {
  MICA_CHECK(A.dim() >= 2, "linalg.lu: Expected tensor with 2 or more dimensions. Got size: ", A.sizes(), " instead");
  MICA_CHECK(pivot || !A.is_cpu(), "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  const auto [factors, rows, codes] = mica::linalg_lu_factor_ex(A, pivot, false);
  return mica::lu_unpack(factors, rows, true, true);
}

std::tuple<Tensor, Tensor> linalg_ldl_factor(const Tensor& self, bool hermitian) {
  const auto [factors, rows, codes] = mica::linalg_ldl_factor_ex(self, hermitian, false);
  check_info(codes, "torch.linalg.ldl_factor");
  return {factors, rows};
}

static void check_reflections(const Tensor& input, const Tensor& tau, const char* op) {
  MICA_CHECK(input.dim() >= 2, op, ": input must have at least 2 dimensions.");
  MICA_CHECK(input.size(-2) >= input.size(-1), op,
             ": input.shape[-2] must be greater than or equal to input.shape[-1]");
  MICA_CHECK(tau.dim() >= 1 && input.size(-1) >= tau.size(-1), op,
             ": input.shape[-1] must be greater than or equal to tau.shape[-1]");
  MICA_CHECK(input.dim() - tau.dim() == 1, op,
             ": Expected tau to have one dimension less than input, but got tau.ndim equal to ", tau.dim(),
             " and input.ndim is equal to ", input.dim());
  MICA_CHECK(IntArrayRef(batch_sizes(input)) == IntArrayRef(batch_sizes(tau, 1)), op,
             ": Expected batch dimensions of tau to be equal to input.shape[:-2], but got ",
             IntArrayRef(batch_sizes(tau, 1)));
  MICA_CHECK(tau.dtype() == input.dtype(), op, ": tau dtype ", info(tau.dtype()).legacy, " does not match input dtype ",
             info(input.dtype()).legacy);
  MICA_CHECK(tau.device() == input.device(), op, ": Expected all tensors to be on the same device");
}

// (I - tau v v^H) m for reflection i, whose vector lies below the diagonal of column i.
static Tensor reflect(const Tensor& vectors, const Tensor& tau, const Tensor& m, int64_t i, bool adjoint) {
  const int64_t rows = vectors.size(-2);
  Tensor v = vectors.narrow(-1, i, 1).narrow(-2, i, rows - i).tril(-1) + eye(rows - i, 1, vectors.options());
  if (i > 0) v = constant_pad_nd(v, {0, 0, i, 0});
  Tensor scale = tau.narrow(-1, i, 1).unsqueeze(-1);
  if (adjoint && scale.is_complex()) scale = scale.conj();
  return m - scale * matmul(v, matmul(v.mH(), m));
}

Tensor linalg_householder_product(const Tensor& input, const Tensor& tau) {
  check_reflections(input, tau, "torch.linalg.householder_product");
  if (!grad_enabled() || !(input.requires_grad() || tau.requires_grad()))
    return mica::_linalg_householder_product(input, tau);
  Tensor q = eye(input.size(-2), input.size(-1), input.options()).expand(input.sizes());
  for (int64_t i = tau.size(-1) - 1; i >= 0; --i) q = reflect(input, tau, q, i, false);
  return q;
}

Tensor orgqr(const Tensor& self, const Tensor& input2) { return mica::linalg_householder_product(self, input2); }

Tensor ormqr(const Tensor& self, const Tensor& input2, const Tensor& input3, bool left, bool transpose) {
  MICA_CHECK(self.dim() >= 2, "torch.ormqr: input must have at least 2 dimensions.");
  MICA_CHECK(input3.dim() >= 2, "torch.ormqr: other must have at least 2 dimensions.");
  const int64_t side = input3.size(left ? -2 : -1);
  MICA_CHECK(side == self.size(-2), "torch.ormqr: other.shape[", left ? -2 : -1, "] must be equal to input.shape[-2]");
  MICA_CHECK(input2.dim() >= 1 && input2.size(-1) == std::min(side, self.size(-1)),
             "torch.ormqr: tau.shape[-1] must be equal to min(other.shape[", left ? -2 : -1, "], input.shape[-1])");
  MICA_CHECK(self.dim() - input2.dim() == 1,
             "torch.ormqr: Expected tau to have one dimension less than input, but got ", "tau.ndim equal to ",
             input2.dim(), " and input.ndim is equal to ", self.dim());
  MICA_CHECK(self.dim() == input3.dim(), "torch.ormqr: Expected other to have the same number of dimensions as input, ",
             "but got other.ndim equal to ", input3.dim(), " and input.ndim is equal to ", self.dim());
  MICA_CHECK(IntArrayRef(batch_sizes(self)) == IntArrayRef(batch_sizes(input2, 1)),
             "torch.ormqr: Expected batch dimensions of tau to be equal to input.shape[:-2], but got ",
             IntArrayRef(batch_sizes(input2, 1)));
  MICA_CHECK(IntArrayRef(batch_sizes(self)) == IntArrayRef(batch_sizes(input3)),
             "torch.ormqr: Expected batch dimensions of other to be equal to input.shape[:-2], but got ",
             IntArrayRef(batch_sizes(input3)));
  MICA_CHECK(input2.dtype() == self.dtype(),
             "torch.ormqr: Expected input and tau to have the same dtype, but input has dtype",
             info(self.dtype()).legacy, " and tau has dtype ", info(input2.dtype()).legacy);
  MICA_CHECK(input3.dtype() == self.dtype(), "torch.ormqr: Expected input and other to have the same dtype, but input ",
             "has dtype", info(self.dtype()).legacy, " and other has dtype ", info(input3.dtype()).legacy);
  if (!grad_enabled() || !(self.requires_grad() || input2.requires_grad() || input3.requires_grad()))
    return mica::_ormqr(self, input2, input3, left, transpose);
  // Q = H_1 ... H_k. From the right: C Q = (Q^H C^H)^H.
  Tensor c = left ? input3 : input3.mH();
  const bool adjoint = left == transpose;
  const int64_t k = input2.size(-1);
  for (int64_t step = 0; step < k; ++step) c = reflect(self, input2, c, adjoint ? step : k - 1 - step, adjoint);
  return left ? c : c.mH();
}

std::tuple<Tensor, Tensor> qr(const Tensor& self, bool some) {
  MICA_WARN_ONCE(
      "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch release.\n"
      "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\nQ, R = torch.qr(A, some)\n"
      "should be replaced with\nQ, R = torch.linalg.qr(A, 'reduced' if some else 'complete')");
  return mica::linalg_qr(self, some ? "reduced" : "complete");
}

// ---- spectra

std::tuple<Tensor, Tensor, Tensor> linalg_svd(const Tensor& A, bool full_matrices,
                                              std::optional<std::string_view> driver) {
  return mica::_linalg_svd(A, full_matrices, true, driver);
}

Tensor linalg_svdvals(const Tensor& A, std::optional<std::string_view> driver) {
  return std::get<1>(mica::_linalg_svd(A, false, grad_enabled() && A.requires_grad(), driver));
}

std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& self, bool some, bool compute_uv) {
  MICA_CHECK(self.dim() >= 2, "linalg.svd: input should have at least 2 dimensions, but has ", self.dim(),
             " dimensions instead");
  const bool vectors = compute_uv || (grad_enabled() && self.requires_grad());
  auto [u, s, vh] = mica::_linalg_svd(self, compute_uv && !some, vectors, std::nullopt);
  if (compute_uv) return {u, s, vh.mH()};
  const DimVector batch = batch_sizes(self);
  return {zeros(with_sizes(batch, {self.size(-2), self.size(-2)}), self.options()), s,
          zeros(with_sizes(batch, {self.size(-1), self.size(-1)}), self.options())};
}

std::tuple<Tensor, Tensor> linalg_eigh(const Tensor& self, std::string_view UPLO) {
  return mica::_linalg_eigh(self, UPLO, true);
}

Tensor linalg_eigvalsh(const Tensor& self, std::string_view UPLO) {
  return std::get<0>(mica::_linalg_eigh(self, UPLO, grad_enabled() && self.requires_grad()));
}

Tensor linalg_eigvals(const Tensor& self) {
  if (grad_enabled() && self.requires_grad()) return std::get<0>(mica::linalg_eig(self));
  return mica::_linalg_eigvals(self);
}

// ---- inverses, determinants, systems

Tensor linalg_inv(const Tensor& A) {
  const auto [result, codes] = mica::linalg_inv_ex(A, false);
  check_info(codes, "linalg.inv");
  return result;
}

Tensor inverse(const Tensor& self) { return mica::linalg_inv(self); }
Tensor linalg_det(const Tensor& A) { return std::get<0>(mica::_linalg_det(A)); }
Tensor det(const Tensor& self) { return mica::linalg_det(self); }

std::tuple<Tensor, Tensor> linalg_slogdet(const Tensor& A) {
  auto [sign, logabsdet, factors, rows] = mica::_linalg_slogdet(A);
  return {sign, logabsdet};
}

std::tuple<Tensor, Tensor> slogdet(const Tensor& self) { return mica::linalg_slogdet(self); }

Tensor logdet(const Tensor& self) {
  check_square(self, "logdet");
  check_floating(self, "logdet", false);
  const auto [sign, logabsdet] = mica::linalg_slogdet(self);
  if (self.is_complex()) return sign.log() + logabsdet;
  return where(eq(sign, Scalar(-1)), Scalar(std::numeric_limits<double>::quiet_NaN()), logabsdet).to(self.dtype());
}

std::tuple<Tensor, Tensor> linalg_solve_ex(const Tensor& A, const Tensor& B, bool left, bool check_errors) {
  auto [x, factors, rows, codes] = mica::_linalg_solve_ex(A, B, left, check_errors);
  return {x, codes};
}

Tensor linalg_solve(const Tensor& A, const Tensor& B, bool left) {
  auto [x, factors, rows, codes] = mica::_linalg_solve_ex(A, B, left, false);
  check_info(codes, "torch.linalg.solve");
  return x;
}

Tensor lu_solve(const Tensor& self, const Tensor& LU_data, const Tensor& LU_pivots) {
  MICA_WARN_ONCE(
      "torch.lu_solve is deprecated in favor of torch.linalg.lu_solveand will be removed in a future PyTorch release.\n"
      "Note that torch.linalg.lu_solve has its arguments reversed.\nX = torch.lu_solve(B, LU, pivots)\n"
      "should be replaced with\nX = torch.linalg.lu_solve(LU, pivots, B)");
  return mica::linalg_lu_solve(LU_data, LU_pivots, self, true, false);
}

std::tuple<Tensor, Tensor> triangular_solve(const Tensor& self, const Tensor& A, bool upper, bool transpose,
                                            bool unitriangular) {
  MICA_WARN_ONCE(
      "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangularand will be removed in a future "
      "PyTorch release.\ntorch.linalg.solve_triangular has its arguments reversed and does not return a copy of one of "
      "the inputs.\nX = torch.triangular_solve(B, A).solution\nshould be replaced with\n"
      "X = torch.linalg.solve_triangular(A, B).");
  MICA_CHECK(self.dim() >= 2, "torch.triangular_solve: Expected b to have at least 2 dimensions, but it has ",
             self.dim(), " dimensions instead");
  MICA_CHECK(A.dim() >= 2, "torch.triangular_solve: Expected A to have at least 2 dimensions, but it has ", A.dim(),
             " dimensions instead");
  check_square(A, "triangular_solve");
  const Tensor a = transpose ? A.mT() : A;
  return {mica::linalg_solve_triangular(a, self, upper != transpose, true, unitriangular), A.clone()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> linalg_lstsq(const Tensor& self, const Tensor& b,
                                                        std::optional<double> rcond,
                                                        std::optional<std::string_view> driver) {
  MICA_CHECK(self.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  MICA_CHECK(b.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  MICA_CHECK(self.dtype() == b.dtype(), "torch.linalg.lstsq: Expected input and other to have the same dtype, but got ",
             "input's dtype ", info(self.dtype()).legacy, " and other's dtype ", info(b.dtype()).legacy);
  MICA_CHECK(
      self.dim() - b.dim() == 1 || self.dim() - b.dim() == 0 || b.dim() == 1 || b.dim() >= 2,
      "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1");
  const int64_t apart = self.dim() - b.dim();
  MICA_CHECK(
      0 <= apart && apart <= 1,
      "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1");
  check_kernel_dtype(self, "torch.linalg.lstsq");
  // A right side that is not a vector for each matrix is one matrix for all.
  const bool vector = b.dim() == 1 || (apart == 1 && b.sizes() == self.sizes().slice(0, self.sizes().size() - 1));
  if (vector) {
    MICA_CHECK(self.size(-2) == b.size(-1), "torch.linalg.lstsq: input.size(-2) should match other.size(-1)");
  } else {
    MICA_CHECK(self.size(-2) == b.size(-2), "torch.linalg.lstsq: input.size(-2) should match other.size(-2)");
  }
  MICA_CHECK(!driver || *driver == "gels" || *driver == "gelsy" || *driver == "gelsd" || *driver == "gelss",
             "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  // On a GPU torch has only the driver for matrices of full rank. Here the others can be asked for by name too.
  const std::string_view usual = self.is_cpu() || self.is_meta() ? "gelsy" : "gels";
  const Tensor right = vector ? b.unsqueeze(-1) : b;
  auto [x, residuals, rank, values] = mica::_linalg_lstsq(self, right, rcond, driver.value_or(usual));
  return {vector ? x.squeeze(-1) : x, residuals, rank, values};
}

}  // namespace mica::composite
