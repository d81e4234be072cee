#include "linalg/matrices.h"

#include <cstring>

#include "core/absent_memory.h"
#include "core/geometry.h"
#include "mica/backend/kernel_types.h"
#include "mica/core/grad_mode.h"
#include "mica/core/linalg_error.h"
#include "mica/ops.h"

namespace mica::linalg_rules {

void check_matrix(const Tensor& a, const char* op, const char* name) {
  MICA_CHECK(a.dim() >= 2, op, ": The input tensor ", name, " must have at least 2 dimensions.");
}

void check_square(const Tensor& a, const char* op, const char* name) {
  check_matrix(a, op, name);
  MICA_CHECK(a.size(-1) == a.size(-2), op, ": ", name, " must be batches of square matrices, but they are ", a.size(-2),
             " by ", a.size(-1), " matrices");
}

void check_floating(const Tensor& a, const char* op, bool low_precision) {
  MICA_CHECK(a.is_floating_point() || a.is_complex(), op,
             ": Expected a floating point or complex tensor as input. Got ", info(a.dtype()).legacy);
  if (low_precision) return;
  const bool low = a.dtype() != DType::Float32 && a.dtype() != DType::Float64 && a.dtype() != DType::Complex64 &&
                   a.dtype() != DType::Complex128;
  MICA_CHECK(!low, op, ": Low precision dtypes not supported. Got ", info(a.dtype()).legacy);
}

void check_kernel_dtype(const Tensor& a, const char* kernel) {
  if (a.dtype() != DType::Float32 && a.dtype() != DType::Float64 && a.dtype() != DType::Complex64 &&
      a.dtype() != DType::Complex128)
    unsupported_dtype(kernel, a.dtype());
}

void check_same_dtype(const Tensor& a, const Tensor& b, const char* op) {
  MICA_CHECK(a.dtype() == b.dtype(), op, ": Expected A and B to have the same dtype, but found A of type ",
             info(a.dtype()).legacy, " and B of type ", info(b.dtype()).legacy, " instead");
}

DimVector batch_sizes(const Tensor& a, int64_t inner) {
  const IntArrayRef sizes = a.sizes();
  return DimVector(IntArrayRef(sizes.begin(), sizes.size() - static_cast<size_t>(inner)));
}

DimVector with_sizes(IntArrayRef batch, std::initializer_list<int64_t> inner) {
  DimVector sizes(batch);
  for (const int64_t n : inner) sizes.push_back(n);
  return sizes;
}

Tensor empty_columns(IntArrayRef sizes, const TensorOptions& options) {
  DimVector transposed(sizes);
  const size_t last = sizes.size() - 1;
  std::swap(transposed[last], transposed[last - 1]);
  DimVector strides = contiguous_strides(transposed);
  std::swap(strides[last], strides[last - 1]);
  return empty_strided(sizes, strides, options);
}

void give(Out& out, const Tensor& computed) { out.take(computed.is_view() ? computed.tensor_data() : computed); }

Tensor column_copy(const Tensor& a) {
  const Tensor columns = empty_columns(a.sizes(), a.options());
  if (!a.is_meta()) columns.copy_(a);
  return columns;
}

Tensor empty_info(const Tensor& a) {
  TensorOptions options = a.options();
  options = options.dtype(DType::Int32);
  return zeros(batch_sizes(a), options);
}

Tensor expand_batch(const Tensor& a, IntArrayRef batch) {
  return a.expand(with_sizes(batch, {a.size(-2), a.size(-1)}));
}

DimVector broadcast_batch(const Tensor& a, const Tensor& b) { return broadcast_sizes(batch_sizes(a), batch_sizes(b)); }

void check_info(const Tensor& info, const char* op) {
  if (info.is_meta() || info.numel() == 0) return;
  if (is_absent(info)) [[unlikely]] {  // the class is asked for each number
    const NoGradGuard values;
    const Tensor codes = info.reshape({-1});
    Tensor own = empty({codes.numel()}, TensorOptions(DType::Int32));
    for (int64_t i = 0; i < codes.numel(); ++i) own.select(0, i).fill_(codes.select(0, i).item());
    return check_info(info.dim() ? own : own.reshape({}), op);
  }
  const Tensor flat = info.is_cpu() ? info : info.to(TensorOptions(kCPU));
  const int32_t* const values = flat.data_ptr<int32_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const int32_t code = values[i];
    if (code == 0) continue;
    const std::string where = flat.dim() ? cat(op, ": (Batch element ", i, "): ") : cat(op, ": ");
    const auto is = [&](const char* name) { return std::strstr(op, name) != nullptr; };
    if (is("svd") && code < 0)
      throw LinAlgError(where +
                        "The algorithm failed to converge because the input matrix contained non-finite values.");
    MICA_CHECK(code > 0, where, "Argument ", -code, " has illegal value.");
    if (is("lu_factor"))
      fail(where + cat("U[", code, ",", code,
                       "] is zero and using it on lu_solve would result in a division by zero. If you still want to "
                       "perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, "
                       "pivot)"));
    if (is("inv"))
      throw LinAlgError(where + cat("The diagonal element ", code, " is zero, the inversion could not be completed ",
                                    "because the input matrix is singular."));
    if (is("solve")) throw LinAlgError(where + "The solver failed because the input matrix is singular.");
    if (is("cholesky"))
      throw LinAlgError(where + cat("The factorization could not be completed because the input is not ",
                                    "positive-definite (the leading minor of order ", code,
                                    " is not positive-definite)."));
    if (is("lstsq"))
      throw LinAlgError(where + cat("The least squares solution could not be computed because the input matrix does ",
                                    "not have full rank (error code: ", code, ")."));
    if (is("ldl")) throw LinAlgError(where + cat("D[", code, ",", code, "] is zero: the input matrix is singular."));
    throw LinAlgError(
        where + cat("The algorithm failed to converge because the input matrix is ill-conditioned or has ",
                    "too many repeated ", is("svd") ? "singular values" : "eigenvalues", " (error code: ", code, ")."));
  }
}

}  // namespace mica::linalg_rules
