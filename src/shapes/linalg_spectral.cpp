// Rules of decompositions that are found by iteration: eigenvalues and singular values.
#include <limits>

#include "linalg/matrices.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/decompositions_implementations.h"
#include "mica/ops.h"

namespace mica::shapes {

using namespace linalg_rules;  // NOLINT

void _linalg_svd(Out& U, Out& S, Out& Vh, const Tensor& A, bool full_matrices, bool compute_uv,
                 std::optional<std::string_view> driver) {
  check_matrix(A, "linalg.svd");
  check_floating(A, "linalg.svd");
  check_kernel_dtype(A, "linalg_svd_cpu");
  MICA_CHECK(!driver || capabilities_of(A.device()).svd_drivers,
             "linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.");
  MICA_CHECK(!driver || *driver == "gesvd" || *driver == "gesvdj" || *driver == "gesvda",
             "linalg.svd: unknown svd driver ", driver.value_or(""), " in svd_cusolver computation.");
  const int64_t m = A.size(-2), n = A.size(-1), k = std::min(m, n);
  const DimVector batch = batch_sizes(A);
  const TensorOptions real = A.options().dtype(to_real(A.dtype()));
  const Tensor s = empty(with_sizes(batch, {k}), real);
  Tensor u, vh;
  if (compute_uv) {
    u = empty_columns(with_sizes(batch, {m, full_matrices ? m : k}), A.options());
    vh = empty_columns(with_sizes(batch, {full_matrices ? n : k, n}), A.options());
  } else {
    u = empty({0}, A.options());
    vh = empty({0}, A.options());
  }
  if (!A.is_meta()) {
    if (A.numel() > 0) {
      const Tensor work = column_copy(A), codes = empty_info(A);
      MICA_LAYER_KERNEL(A.device(), linalg_svd)
      (work.view_of(), u.view_of(), s.view_of(), vh.view_of(), codes.view_of(),
       !compute_uv               ? 0
       : full_matrices && m != n ? 2
                                 : 1);
      check_info(codes, "linalg.svd");
    } else if (compute_uv && full_matrices) {  // for matrices without elements any orthogonal ones will do
      if (u.numel()) u.copy_(eye(m, A.options()).expand(u.sizes()));
      if (vh.numel()) vh.copy_(eye(n, A.options()).expand(vh.sizes()));
    }
  }
  give(U, u);
  give(S, s);
  give(Vh, vh);
}

static bool reads_upper(std::string_view uplo) {
  MICA_CHECK(uplo.size() == 1 && std::string_view("LlUu").find(uplo[0]) != std::string_view::npos,
             "Expected UPLO argument to be 'L' or 'U', but got ", uplo);
  return uplo[0] == 'U' || uplo[0] == 'u';
}

// A matrix that holds NaN or infinity has no eigenvalues. Its results are NaN, and the call does not fail.
static void answer_without_eigenvalues(const Tensor& A, bool upper, const Tensor& codes, const Tensor& values,
                                       const Tensor& vectors) {
  const Tensor broken = mica::logical_not(mica::isfinite(upper ? mica::triu(A) : mica::tril(A)));
  const Tensor unanswered = mica::logical_and(mica::any(mica::any(broken, -1), -1), mica::ne(codes, Scalar(0)));
  const Scalar nan(std::numeric_limits<double>::quiet_NaN());
  values.masked_fill_(unanswered.unsqueeze(-1), nan);
  vectors.masked_fill_(unanswered.unsqueeze(-1).unsqueeze(-1), nan);
  codes.masked_fill_(unanswered, Scalar(0));
}

void _linalg_eigh(Out& eigenvalues, Out& eigenvectors, const Tensor& A, std::string_view UPLO, bool compute_v) {
  check_square(A, "linalg.eigh");
  const bool upper = reads_upper(UPLO);
  check_kernel_dtype(A, "linalg_eigh_cpu");
  const TensorOptions real = A.options().dtype(to_real(A.dtype()));
  const Tensor values = empty(with_sizes(batch_sizes(A), {A.size(-1)}), real);
  const Tensor vectors = column_copy(A);
  if (!A.is_meta() && A.numel() > 0) {
    const Tensor codes = empty_info(A);
    MICA_LAYER_KERNEL(A.device(), linalg_eigh)(vectors.view_of(), values.view_of(), codes.view_of(), upper, compute_v);
    if (mica::any(codes).item<bool>()) [[unlikely]] {
      // The other triangle must not count: a NaN there is not a failure.
      vectors.copy_(upper ? mica::triu(A) : mica::tril(A));
      MICA_LAYER_KERNEL(A.device(), linalg_eigh)
      (vectors.view_of(), values.view_of(), codes.view_of(), upper, compute_v);
      answer_without_eigenvalues(A, upper, codes, values, vectors);
    }
    check_info(codes, "linalg.eigh");
  }
  give(eigenvalues, values);
  give(eigenvectors, compute_v ? vectors : empty({0}, A.options()));
}

static void run_eig(const Tensor& a, const char* op, Tensor& values, Tensor& vectors, bool wanted) {
  check_square(a, op);
  MICA_CHECK(a.is_floating_point() || a.is_complex(), "Unknown Complex ScalarType for ", info(a.dtype()).legacy);
  check_kernel_dtype(a, "linalg_eig_out_cpu");
  const TensorOptions complex = a.options().dtype(a.is_complex() ? a.dtype() : to_complex(a.dtype()));
  values = empty(with_sizes(batch_sizes(a), {a.size(-1)}), complex);
  vectors = wanted ? empty_columns(a.sizes(), complex) : empty({0}, complex);
  if (a.is_meta() || a.numel() == 0) return;
  MICA_CHECK(all(isfinite(a)).item<bool>(), "torch.", op, ": input tensor should not contain infs or NaNs.");
  const Tensor work = column_copy(a), codes = empty_info(a);
  MICA_LAYER_KERNEL(a.device(), linalg_eig)
  (work.view_of(), values.view_of(), vectors.view_of(), codes.view_of(), wanted);
  check_info(codes, op);
}

void linalg_eig(Out& eigenvalues, Out& eigenvectors, const Tensor& self) {
  Tensor values, vectors;
  run_eig(self, "linalg.eig", values, vectors, true);
  give(eigenvalues, values);
  give(eigenvectors, vectors);
}

void _linalg_eigvals(Out& out, const Tensor& self) {
  Tensor values, vectors;
  run_eig(self, "linalg.eigvals", values, vectors, false);
  give(out, values);
}

}  // namespace mica::shapes
