// Rules of linear systems, inverses and determinants.
#include <algorithm>
#include <limits>

#include "core/geometry.h"
#include "linalg/matrices.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/decompositions.h"
#include "mica/generated/layers/linear_systems_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"

namespace mica::shapes {

using namespace linalg_rules;  // NOLINT

void linalg_inv_ex(Out& inverse, Out& info, const Tensor& A, bool check_errors) {
  check_square(A, "linalg.inv");
  check_floating(A, "linalg.inv", false);
  const Tensor result = column_copy(A), codes = empty_info(A);
  if (!A.is_meta() && A.numel() > 0) MICA_LAYER_KERNEL(A.device(), linalg_inverse)(result.view_of(), codes.view_of());
  if (check_errors) check_info(codes, "linalg.inv_ex");
  give(inverse, result);
  give(info, codes);
}

// 1 or -1 for each matrix: whether its pivots exchange an even or an odd number of rows.
static Tensor permutation_sign(const Tensor& pivots, DType dtype) {
  const int64_t n = pivots.size(-1);
  const Tensor places = arange(Scalar(1), Scalar(n + 1), pivots.options());
  const Tensor odd = ne(pivots, places).sum(-1).remainder(Scalar(2));
  return (Scalar(1) - Scalar(2) * odd).to(dtype);
}

static Tensor determinants(const Tensor& factors, const Tensor& pivots) {
  if (factors.numel() > 0 && !factors.is_meta() &&
      MICA_LAYER_TAKES(factors.device(), linalg_lu_determinant, &factors.view_of(), &pivots.view_of())) {
    const Tensor result = empty(batch_sizes(factors), factors.options());
    MICA_LAYER_KERNEL(factors.device(), linalg_lu_determinant)(result.view_of(), factors.view_of(), pivots.view_of());
    return result;
  }
  return factors.diagonal(0, -2, -1).prod(-1) * permutation_sign(pivots, factors.dtype());
}

void _linalg_det(Out& result, Out& LU, Out& pivots, const Tensor& A) {
  check_square(A, "linalg.det");
  check_floating(A, "linalg.det");
  const auto [factors, rows, codes] = mica::linalg_lu_factor_ex(A);
  give(result, determinants(factors, rows));
  give(LU, factors);
  give(pivots, rows);
}

void _linalg_slogdet(Out& sign, Out& logabsdet, Out& LU, Out& pivots, const Tensor& A) {
  check_square(A, "linalg.slogdet");
  check_floating(A, "linalg.slogdet", false);
  const auto [factors, rows, codes] = mica::linalg_lu_factor_ex(A);
  const Tensor diagonal = factors.diagonal(0, -2, -1);
  give(sign, sgn(diagonal).prod(-1) * permutation_sign(rows, A.dtype()));
  give(logabsdet, abs(diagonal).log().sum(-1));
  give(LU, factors);
  give(pivots, rows);
}

// Whether B is a vector for each matrix of A, as NumPy has it.
static bool is_vector(const Tensor& a, const Tensor& b) {
  return b.dim() == 1 || (a.dim() - 1 == b.dim() && b.sizes() == IntArrayRef(batch_sizes(a, 1)));
}

static void check_sides(const Tensor& a, const Tensor& b, bool left, const char* op) {
  check_matrix(b, op, "B");
  check_square(a, op);
  MICA_CHECK(left ? a.size(-2) == b.size(-2) : a.size(-1) == b.size(-1), op,
             ": Incompatible shapes of A and B for the equation ", left ? "AX = B" : "XA = B", " (", a.size(-2), "x",
             a.size(-1), " and ", b.size(-2), "x", b.size(-1), ")");
}

void _linalg_solve_ex(Out& result, Out& LU, Out& pivots, Out& info, const Tensor& A, const Tensor& B, bool left,
                      bool check_errors) {
  check_one_device("linalg.solve", {&A, &B});
  check_floating(A, "linalg.solve");
  check_same_dtype(A, B, "linalg.solve");
  check_square(A, "linalg.solve");
  MICA_CHECK(B.dim() >= 1, "linalg.solve: The input tensor B must have at least 1 dimension.");
  const bool vector = is_vector(A, B);
  MICA_CHECK(left || !vector,
             "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case "
             "linalg.solve is equivalent to B / A.squeeze(-1)");
  const Tensor b = vector ? B.unsqueeze(-1) : B;
  check_sides(A, b, left, "linalg.solve");
  check_kernel_dtype(A, "linalg_solve");
  const DimVector batch = broadcast_batch(A, b);
  const auto [factors, rows, codes] = mica::linalg_lu_factor_ex(A);
  if (check_errors) check_info(codes, "torch.linalg.solve_ex");
  const Tensor b_all = expand_batch(b, batch);
  Tensor x;
  if (A.is_meta() || b_all.numel() == 0) {
    x = empty_columns(b_all.sizes(), B.options());
  } else {
    const bool same = IntArrayRef(batch) == IntArrayRef(batch_sizes(A));
    const Tensor lu = same ? factors : column_copy(expand_batch(factors, batch));
    const Tensor order = same ? rows : rows.expand(with_sizes(batch, {A.size(-1)})).contiguous();
    x = column_copy(left ? b_all : b_all.transpose(-2, -1));
    MICA_LAYER_KERNEL(A.device(), linalg_lu_solve)(lu.view_of(), order.view_of(), x.view_of(), left ? 0 : 1);
    if (!left) x = column_copy(x.transpose(-2, -1));
  }
  give(result, vector ? x.squeeze(-1) : x);
  give(LU, factors);
  give(pivots, rows);
  give(info, codes);
}

void linalg_lu_solve(Out& out, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint) {
  check_one_device("linalg.lu_solve", {&LU, &pivots, &B});
  check_floating(LU, "torch.linalg.lu_solve");
  MICA_CHECK(LU.dtype() == B.dtype(),
             "linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type ",
             info(LU.dtype()).legacy, " and B of type ", info(B.dtype()).legacy, " instead");
  MICA_CHECK(pivots.dtype() == DType::Int32, "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32");
  check_square(LU, "torch.linalg.lu_solve", "LU");
  check_sides(LU, B, left, "linalg.lu_solve");
  MICA_CHECK(pivots.dim() >= 1 && LU.size(-1) == pivots.size(-1),
             "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix");
  MICA_CHECK(IntArrayRef(batch_sizes(LU)) == IntArrayRef(batch_sizes(pivots, 1)),
             "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape ",
             pivots.sizes(), " instead");
  check_kernel_dtype(LU, "lu_solve_cpu");
  const DimVector batch = broadcast_batch(LU, B);
  const Tensor b = expand_batch(B, batch);
  if (B.is_meta() || b.numel() == 0) {
    give(out, empty_columns(b.sizes(), B.options()));
    return;
  }
  const Tensor factors = column_copy(expand_batch(LU, batch));
  const Tensor order = pivots.expand(with_sizes(batch, {LU.size(-1)})).contiguous();
  // X A = B is A^T X^T = B^T, and X A^H = B is conj(A) X^T = B^T.
  if (left) {
    const Tensor x = column_copy(b);
    MICA_LAYER_KERNEL(B.device(), linalg_lu_solve)(factors.view_of(), order.view_of(), x.view_of(), adjoint ? 2 : 0);
    give(out, x);
  } else if (adjoint) {
    const Tensor x = column_copy(b.transpose(-2, -1).conj_physical());
    MICA_LAYER_KERNEL(B.device(), linalg_lu_solve)(factors.view_of(), order.view_of(), x.view_of(), 0);
    give(out, column_copy(x.transpose(-2, -1).conj_physical()));
  } else {
    const Tensor x = column_copy(b.transpose(-2, -1));
    MICA_LAYER_KERNEL(B.device(), linalg_lu_solve)(factors.view_of(), order.view_of(), x.view_of(), 1);
    give(out, column_copy(x.transpose(-2, -1)));
  }
}

void linalg_solve_triangular(Out& out, const Tensor& self, const Tensor& B, bool upper, bool left, bool unitriangular) {
  check_one_device("linalg.solve_triangular", {&self, &B});
  check_same_dtype(self, B, "linalg.solve_triangular");
  check_matrix(B, "linalg.solve_triangular", "B");
  check_sides(self, B, left, "linalg.solve_triangular");
  check_kernel_dtype(self, "triangular_solve_cpu");
  const DimVector batch = broadcast_batch(self, B);
  const Tensor b = expand_batch(B, batch);
  const Tensor x = column_copy(b);
  if (!B.is_meta() && b.numel() > 0) {
    const Tensor a = column_copy(expand_batch(self, batch));
    MICA_LAYER_KERNEL(B.device(), linalg_triangular_solve)
    (a.view_of(), x.view_of(), left, upper, 0, unitriangular);
  }
  give(out, x);
}

void cholesky_solve(Out& out, const Tensor& self, const Tensor& input2, bool upper) {
  check_one_device("cholesky_solve", {&self, &input2});
  MICA_CHECK(self.dim() >= 2, "b should have at least 2 dimensions, but has ", self.dim(), " dimensions instead");
  MICA_CHECK(input2.dim() >= 2, "u should have at least 2 dimensions, but has ", input2.dim(), " dimensions instead");
  MICA_CHECK(input2.dtype() == self.dtype(), "cholesky_solve: Expected b and u to have the same dtype, but found b of ",
             "type ", info(self.dtype()).legacy, " and u of type ", info(input2.dtype()).legacy, " instead");
  check_sides(input2, self, true, "cholesky_solve");
  check_kernel_dtype(self, "cholesky_solve_cpu");
  const DimVector batch = broadcast_batch(self, input2);
  const Tensor x = column_copy(expand_batch(self, batch));
  if (!self.is_meta() && x.numel() > 0) {
    const Tensor factor = column_copy(expand_batch(input2, batch));
    MICA_LAYER_KERNEL(self.device(), linalg_cholesky_solve)(factor.view_of(), x.view_of(), upper);
  }
  give(out, x);
}

void cholesky_inverse(Out& out, const Tensor& self, bool upper) {
  check_square(self, "cholesky_inverse");
  check_kernel_dtype(self, "cholesky_inverse_out_cpu");
  const Tensor result = column_copy(self), codes = empty_info(self);
  if (!self.is_meta() && self.numel() > 0)
    MICA_LAYER_KERNEL(self.device(), linalg_cholesky_inverse)(result.view_of(), codes.view_of(), upper);
  check_info(codes, "cholesky_inverse");
  give(out, result);
}

void linalg_ldl_solve(Out& out, const Tensor& LD, const Tensor& pivots, const Tensor& B, bool hermitian) {
  check_one_device("linalg.ldl_solve", {&LD, &pivots, &B});
  check_square(LD, "torch.linalg.ldl_solve", "LD");
  check_floating(LD, "torch.linalg.ldl_solve");
  check_sides(LD, B, true, "torch.linalg.ldl_solve");
  MICA_CHECK(pivots.dim() >= 1, "torch.linalg.ldl_solve: Expected pivots to have at least 1 dimension");
  MICA_CHECK(
      pivots.sizes() == IntArrayRef(batch_sizes(LD, 1)),
      "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape ",
      pivots.sizes(), " instead");
  MICA_CHECK(is_integral(pivots.dtype()), "torch.linalg.ldl_solve: Expected pivots to be integers. Got ",
             info(pivots.dtype()).legacy);
  MICA_CHECK(LD.dtype() == B.dtype(), "torch.linalg.ldl_solve: LD dtype ", info(LD.dtype()).legacy,
             " does not match b dtype ", info(B.dtype()).legacy);
  check_kernel_dtype(LD, "ldl_solve_kernel_cpu");
  const DimVector batch = broadcast_batch(LD, B);
  const Tensor x = column_copy(expand_batch(B, batch));
  if (!B.is_meta() && x.numel() > 0) {
    const Tensor factors = column_copy(expand_batch(LD, batch));
    const Tensor order = pivots.to(DType::Int32).expand(with_sizes(batch, {LD.size(-1)})).contiguous();
    MICA_LAYER_KERNEL(B.device(), linalg_ldl_solve)
    (factors.view_of(), order.view_of(), x.view_of(), hermitian && LD.is_complex());
  }
  give(out, x);
}

// One entry for each matrix that was given. Where one matrix stands for a whole batch, its entries are equal.
static Tensor by_given_matrix(Tensor entries, const Tensor& matrices) {
  for (int64_t i = 0; i < matrices.dim() - 2 && i < entries.dim(); ++i)
    if (matrices.size(i) == 1 && entries.size(i) > 1) entries = entries.narrow(i, 0, 1);
  return entries;
}

void _linalg_lstsq(Out& solution, Out& residuals, Out& rank, Out& singular_values, const Tensor& self, const Tensor& b,
                   std::optional<double> rcond, std::string_view driver) {
  check_one_device("linalg.lstsq", {&self, &b});
  const int64_t m = self.size(-2), n = self.size(-1), longer = std::max(m, n), k = std::min(m, n);
  const bool vector = is_vector(self, b);
  const Tensor right = vector ? b.unsqueeze(-1) : b;
  const DimVector batch = broadcast_batch(self, right);
  const int64_t columns = right.size(-1);
  const Tensor work = empty_columns(with_sizes(batch, {longer, columns}), self.options());
  const int64_t kind = driver == "gels" ? 0 : driver == "gelsy" ? 1 : driver == "gelsd" ? 2 : 3;
  const TensorOptions real = self.options().dtype(to_real(self.dtype()));
  const Tensor ranks =
      kind == 0 ? empty({0}, self.options().dtype(DType::Int64)) : zeros(batch, self.options().dtype(DType::Int64));
  const Tensor values = kind < 2 ? empty({0}, real) : zeros(with_sizes(batch, {k}), real);
  if (!self.is_meta()) {
    work.zero_();
    work.narrow(-2, 0, m).copy_(right);
    if (self.numel() > 0 && work.numel() > 0) {
      const Tensor a = column_copy(expand_batch(self, batch)), codes = empty_info(a);
      const double epsilon = to_real(self.dtype()) == DType::Float32 ? std::numeric_limits<float>::epsilon()
                                                                     : std::numeric_limits<double>::epsilon();
      MICA_LAYER_KERNEL(self.device(), linalg_lstsq)
      (a.view_of(), work.view_of(), ranks.view_of(), values.view_of(), codes.view_of(),
       rcond.value_or(epsilon * static_cast<double>(longer)), kind);
      check_info(codes, "torch.linalg.lstsq");
    }
  }
  const Tensor x = work.narrow(-2, 0, n);
  // The residual of b, where every matrix has full rank.
  bool full = m > n && kind != 1;
  if (full && kind >= 2 && !self.is_meta()) full = ranks.numel() > 0 && all(eq(ranks, Scalar(n))).item<bool>();
  const Tensor rest = full ? work.narrow(-2, n, m - n).abs().square().sum(-2) : empty({0}, real);
  give(solution, vector ? column_copy(x).squeeze(-1) : column_copy(x));
  give(residuals, rest);
  give(rank, by_given_matrix(ranks, self));
  give(singular_values, by_given_matrix(values, self));
}

}  // namespace mica::shapes
