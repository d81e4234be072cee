// Rules of triangular and orthogonal decompositions. They compute into new column-major tensors, so that a call that
// fails changes no result.
#include "core/geometry.h"
#include "linalg/matrices.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/decompositions_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"

namespace mica::shapes {

using namespace linalg_rules;  // NOLINT

void linalg_cholesky_ex(Out& L, Out& info, const Tensor& self, bool upper, bool check_errors) {
  check_square(self, "linalg.cholesky");
  check_floating(self, "linalg.cholesky");
  check_kernel_dtype(self, "cholesky_cpu");
  const Tensor factor = column_copy(self), codes = empty_info(self);
  if (!self.is_meta() && self.numel() > 0)
    MICA_LAYER_KERNEL(self.device(), linalg_cholesky)(factor.view_of(), codes.view_of(), upper);
  if (check_errors) check_info(codes, "linalg.cholesky_ex");
  give(L, factor);
  give(info, codes);
}

void linalg_lu_factor_ex(Out& LU, Out& pivots, Out& info, const Tensor& A, bool pivot, bool check_errors) {
  MICA_CHECK(A.dim() >= 2, "torch.lu_factor: Expected tensor with 2 or more dimensions. Got size: ", A.sizes(),
             " instead");
  MICA_CHECK(pivot || !A.is_cpu(), "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  check_kernel_dtype(A, "lu_cpu");
  const Tensor factors = column_copy(A), codes = empty_info(A);
  const TensorOptions integers = A.options().dtype(DType::Int32);
  const Tensor rows = empty(with_sizes(batch_sizes(A), {std::min(A.size(-2), A.size(-1))}), integers);
  if (!A.is_meta() && A.numel() > 0) MICA_LAYER_KERNEL(A.device(), linalg_lu_factor)
  (factors.view_of(), pivot ? rows.view_of() : TensorView(), codes.view_of());
  if (!pivot && !A.is_meta()) rows.copy_(arange(Scalar(1), Scalar(rows.size(-1) + 1), integers).expand(rows.sizes()));
  if (check_errors) check_info(codes, "torch.linalg.lu_factor_ex");
  give(LU, factors);
  give(pivots, rows);
  give(info, codes);
}

void lu_unpack(Out& P, Out& L, Out& U, const Tensor& LU_data, const Tensor& LU_pivots, bool unpack_data,
               bool unpack_pivots) {
  check_one_device("lu_unpack", {&LU_data, &LU_pivots});
  MICA_CHECK(LU_data.dim() >= 2,
             "torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: ", LU_data.sizes(), " instead");
  if (unpack_pivots)
    MICA_CHECK(LU_pivots.dtype() == DType::Int32,
               "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n"
               "Note: this function is intended to be used with the output produced by torch.linalg.lu_factor");
  const int64_t m = LU_data.size(-2), n = LU_data.size(-1), k = std::min(m, n);
  if (unpack_data) {
    give(L, LU_data.narrow(-1, 0, k).tril(-1) + eye(m, k, LU_data.options()));
    give(U, LU_data.narrow(-2, 0, k).triu());
  } else {
    give(L, empty({0}, LU_data.options()));
    give(U, empty({0}, LU_data.options()));
  }
  if (!unpack_pivots) {
    give(P, empty({0}, LU_data.options()));
    return;
  }
  const DimVector sizes = with_sizes(batch_sizes(LU_data), {m, m});
  MICA_CHECK(LU_pivots.dim() >= 1 && LU_pivots.size(-1) == k && LU_pivots.dim() == LU_data.dim() - 1,
             "torch.lu_unpack: LU_pivots must have the batch of LU_data and ", k, " entries, but is ", LU_pivots);
  const DType dtype = LU_data.dtype();
  const bool solvable =
      dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Complex64 || dtype == DType::Complex128;
  const bool has_order = MICA_LAYER_TAKES(LU_data.device(), linalg_lu_row_order, &LU_pivots.view_of());
  if (solvable && !has_order && LU_data.numel() > 0) {
    // The row exchanges of a right side, applied to the identity, give P^T.
    const Tensor order =
        arange(Scalar(1), Scalar(m + 1), LU_pivots.options()).expand(with_sizes(batch_sizes(LU_data), {m})).clone();
    order.narrow(-1, 0, k).copy_(LU_pivots);
    const Tensor one = eye(m, LU_data.options()).expand(sizes), factors = column_copy(one), turned = column_copy(one);
    MICA_LAYER_KERNEL(LU_data.device(), linalg_lu_solve)
    (factors.view_of(), order.contiguous().view_of(), turned.view_of(), 0);
    give(P, turned.transpose(-2, -1).contiguous());
    return;
  }
  const Tensor permutation = zeros(sizes, LU_data.options());
  if (!LU_data.is_meta() && permutation.numel() > 0) {
    // Row i of P^T has its one where the exchanges have brought row i.
    const Device device = has_order ? LU_data.device() : kCPU;
    const Tensor rows = LU_pivots.contiguous().to(TensorOptions(device));
    const Tensor columns = empty(with_sizes(batch_sizes(LU_data), {m}), TensorOptions(DType::Int64).device(device));
    MICA_LAYER_KERNEL(device, linalg_lu_row_order)(columns.view_of(), rows.view_of());
    DimVector index = with_sizes(batch_sizes(LU_data), {1, m});
    permutation.scatter_(-2, columns.view(index).to(TensorOptions(LU_data.device())), Scalar(1));
  }
  give(P, permutation);
}

void linalg_ldl_factor_ex(Out& LD, Out& pivots, Out& info, const Tensor& self, bool hermitian, bool check_errors) {
  check_square(self, "torch.linalg.ldl_factor_ex");
  check_floating(self, "torch.linalg.ldl_factor_ex");
  check_kernel_dtype(self, "ldl_factor_kernel_cpu");
  const Tensor factors = column_copy(self), codes = empty_info(self);
  const TensorOptions integers = self.options().dtype(DType::Int32);
  const Tensor rows = empty(with_sizes(batch_sizes(self), {self.size(-1)}), integers);
  if (!self.is_meta() && self.numel() > 0) MICA_LAYER_KERNEL(self.device(), linalg_ldl_factor)
  (factors.view_of(), rows.view_of(), codes.view_of(), hermitian && self.is_complex());
  if (check_errors) check_info(codes, "torch.linalg.ldl_factor_ex");
  give(LD, factors);
  give(pivots, rows);
  give(info, codes);
}

void geqrf(Out& a, Out& tau, const Tensor& self) {
  MICA_CHECK(self.dim() >= 2, "torch.geqrf: input must have at least 2 dimensions.");
  check_kernel_dtype(self, "geqrf_cpu");
  const Tensor factors = column_copy(self);
  const Tensor scales = zeros(with_sizes(batch_sizes(self), {std::min(self.size(-2), self.size(-1))}), self.options());
  if (!self.is_meta() && self.numel() > 0)
    MICA_LAYER_KERNEL(self.device(), linalg_geqrf)(factors.view_of(), scales.view_of());
  give(a, factors);
  give(tau, scales);
}

void _linalg_householder_product(Out& out, const Tensor& input, const Tensor& tau) {
  check_one_device("linalg.householder_product", {&input, &tau});
  check_kernel_dtype(input, "orgqr_cpu");
  const Tensor product = column_copy(input);
  const Tensor scales = tau.contiguous();
  if (!input.is_meta() && input.numel() > 0) {
    if (tau.size(-1) == 0) {
      product.copy_(eye(input.size(-2), input.size(-1), input.options()).expand(input.sizes()));
    } else {
      MICA_LAYER_KERNEL(input.device(), linalg_orgqr)(product.view_of(), scales.view_of());
    }
  }
  give(out, product);
}

void _ormqr(Out& out, const Tensor& self, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  check_one_device("ormqr", {&self, &tau, &other});
  check_kernel_dtype(self, "ormqr_cpu");
  const Tensor product = column_copy(other);
  if (!self.is_meta() && other.numel() > 0 && tau.size(-1) > 0) {
    const Tensor reflectors = column_copy(self), scales = tau.contiguous();
    MICA_LAYER_KERNEL(self.device(), linalg_ormqr)
    (reflectors.view_of(), scales.view_of(), product.view_of(), left, transpose);
  }
  give(out, product);
}

void linalg_qr(Out& Q, Out& R, const Tensor& A, std::string_view mode) {
  check_matrix(A, "linalg.qr");
  check_floating(A, "linalg.qr");
  check_kernel_dtype(A, "geqrf_cpu");
  MICA_CHECK(mode == "reduced" || mode == "complete" || mode == "r", "qr received unrecognized mode '", mode,
             "' but expected one of 'reduced' (default), 'r', or 'complete'");
  const int64_t m = A.size(-2), n = A.size(-1), k = std::min(m, n);
  const bool complete = mode == "complete" && m > n;
  const DimVector batch = batch_sizes(A);
  const int64_t columns = complete ? m : k;
  const bool runs = !A.is_meta() && A.numel() > 0;
  if (mode != "r" && m == n && runs && MICA_LAYER_TAKES(A.device(), linalg_small_qr, &A.view_of())) {
    const Tensor q = column_copy(A), r = empty_columns(A.sizes(), A.options());
    bool done = false;
    MICA_LAYER_KERNEL(A.device(), linalg_small_qr)(q.view_of(), r.view_of(), done);
    if (done) {
      give(Q, q);
      give(R, r);
      return;
    }
  }
  const Tensor factors = column_copy(A);
  const Tensor tau = zeros(with_sizes(batch, {k}), A.options());
  if (runs) MICA_LAYER_KERNEL(A.device(), linalg_geqrf)(factors.view_of(), tau.view_of());
  const Tensor upper = empty_columns(with_sizes(batch, {columns, n}), A.options());
  if (!A.is_meta()) upper.copy_(factors.narrow(-2, 0, columns).triu());
  give(R, upper);
  if (mode == "r") {
    give(Q, empty({0}, A.options()));
    return;
  }
  const Tensor q = empty_columns(with_sizes(batch, {m, columns}), A.options());
  if (!A.is_meta() && q.numel() > 0) {
    if (n == 0) {
      q.copy_(eye(m, columns, A.options()).expand(q.sizes()));
    } else {
      q.narrow(-1, 0, k).copy_(factors.narrow(-1, 0, k));
      if (columns > k) q.narrow(-1, k, columns - k).zero_();
      MICA_LAYER_KERNEL(A.device(), linalg_orgqr)(q.view_of(), tau.view_of());
    }
  }
  give(Q, q);
}

}  // namespace mica::shapes
