// Norms and products of torch.linalg, made of the engine's operations.
#include <limits>

#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/generated/layers/decompositions.h"
#include "mica/generated/layers/linalg.h"
#include "mica/generated/layers/linalg_implementations.h"
#include "mica/ops.h"

namespace mica::composite {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMatrix[] = {0, 1};  // the dimensions of an input that is one

void check_floating(const Tensor& x, const char* operation) {
  MICA_CHECK(x.is_floating_point() || x.is_complex(), operation,
             ": Expected a floating point or complex tensor as input. Got ", info(x.dtype()).legacy);
}

Tensor converted(const Tensor& x, std::optional<DType> dtype, const char* operation) {
  check_floating(x, operation);
  if (!dtype) return x;
  const char* kind = x.is_complex() ? "complex" : "real";
  MICA_CHECK(is_complex(*dtype) == x.is_complex() && (is_complex(*dtype) || is_floating(*dtype)), operation,
             ": dtype should be ", kind, " for ", kind, " inputs, but got ", info(*dtype).legacy);
  MICA_CHECK(promote_types(x.dtype(), *dtype) == *dtype, operation, ": the dtype of the input (",
             info(x.dtype()).legacy, ") should be convertible without narrowing to the specified dtype (",
             info(*dtype).legacy, ")");
  return x.to(*dtype);
}

// The smallest and the largest of no elements do not exist, so these norms have no value there.
void check_identity(const Tensor& x, const Scalar& ord, IntArrayRef dims) {
  const double order = ord.to<double>();
  if (x.numel() > 0 || (order >= 0 && order != kInfinity)) return;
  MICA_CHECK(!dims.empty(), "linalg.vector_norm cannot compute the ", ord,
             " norm on an empty tensor because the operation does not have an identity");
  for (const int64_t d : dims)
    MICA_CHECK(x.size(d) > 0, "linalg.vector_norm cannot compute the ", ord, " norm on the dimension ", d,
               " because this dimension is empty and the operation does not have an identity");
}

// The two dimensions of the matrices, counted from the front.
std::pair<int64_t, int64_t> matrix_dims(const Tensor& x, IntArrayRef dim) {
  MICA_CHECK(x.dim() >= 2, "linalg.matrix_norm: The input tensor A must have at least 2 dimensions.");
  MICA_CHECK(dim.size() == 2, "linalg.matrix_norm: dim must be a 2-tuple. Got ", dim);
  const int64_t rows = wrap_dim(dim[0], x.dim()), columns = wrap_dim(dim[1], x.dim());
  MICA_CHECK(rows != columns, "linalg.matrix_norm: dims must be different. Got (", dim[0], ", ", dim[1], ")");
  return {rows, columns};
}

Tensor singular_values(const Tensor& x, int64_t rows, int64_t columns) {
  const int64_t from[] = {rows, columns}, to[] = {-2, -1};
  return linalg_svdvals(mica::movedim(x, IntArrayRef(from), IntArrayRef(to)));
}

// The largest or the smallest norm. Norms are not negative, so that zero is the largest of none.
Tensor extremum(const Tensor& norms, int64_t dim, bool keepdim, bool largest) {
  if (!largest) return amin(norms, dim, keepdim);
  if (norms.size(dim) > 0) return amax(norms, dim, keepdim);
  return norms.sum(IntArrayRef(dim), keepdim);
}

// Gives back, as size one, the dimensions of the matrices, where they are to be kept.
Tensor restored(const Tensor& values, int64_t rows, int64_t columns, bool keepdim) {
  if (!keepdim) return values;
  return values.unsqueeze(std::min(rows, columns)).unsqueeze(std::max(rows, columns));
}

bool of_matrices(const Tensor& x, const OptionalIntArrayRef& dim) {
  if (dim) {
    MICA_CHECK(dim->size() == 1 || dim->size() == 2,
               "linalg.norm: If dim is specified, it must be of length 1 or 2. Got ", *dim);
    return dim->size() == 2;
  }
  MICA_CHECK(x.dim() == 1 || x.dim() == 2,
             "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got ", x.dim(), "D.");
  return x.dim() == 2;
}

}  // namespace

Tensor linalg_vector_norm(const Tensor& self, const Scalar& ord, OptionalIntArrayRef dim, bool keepdim,
                          std::optional<DType> dtype) {
  MICA_CHECK(!ord.is_complex(), "linalg.vector_norm: Expected a non-complex scalar as the order of norm.");
  const Tensor x = converted(self, dtype, "linalg.vector_norm");
  DimVector dims;
  if (dim && !dim->empty()) {
    dims = wrap_dims(*dim, x.dim());
  } else if (!dim) {
    for (int64_t d = 0; d < x.dim(); ++d) dims.push_back(d);
  }
  check_identity(x, ord, dim ? IntArrayRef(dims) : IntArrayRef());
  if (!dims.empty()) return norm(x, ord, IntArrayRef(dims), keepdim);
  // Every element is a vector of its own.
  return ord.to<double>() == 0 ? ne(x, 0).to(to_real(x.dtype())) : abs(x);
}

Tensor linalg_matrix_norm(const Tensor& self, const Scalar& ord, IntArrayRef dim, bool keepdim,
                          std::optional<DType> dtype) {
  const double order = ord.to<double>();
  const Tensor x = converted(self, dtype, "linalg.matrix_norm");
  const auto [rows, columns] = matrix_dims(x, dim);
  // The norm of a matrix without elements is zero; there is no least row or column of it.
  if (order > 0 && (x.size(rows) == 0 || x.size(columns) == 0)) {
    const int64_t both[] = {rows, columns};
    return abs(x).sum(IntArrayRef(both), keepdim);
  }
  if (std::abs(order) == 2) {
    const Tensor values = singular_values(x, rows, columns);
    return restored(extremum(values, -1, false, order > 0), rows, columns, keepdim);
  }
  MICA_CHECK(std::abs(order) == 1 || std::abs(order) == kInfinity, "linalg.matrix_norm: Order ", ord,
             " not supported.");
  const int64_t summed = std::abs(order) == 1 ? rows : columns;
  int64_t searched = std::abs(order) == 1 ? columns : rows;
  if (!keepdim && searched > summed) --searched;
  const Tensor sums = composite::linalg_vector_norm(x, 1, IntArrayRef(summed), keepdim, std::nullopt);
  return extremum(sums, searched, keepdim, order > 0);
}

Tensor linalg_named_matrix_norm(const Tensor& self, std::string_view ord, IntArrayRef dim, bool keepdim,
                                std::optional<DType> dtype) {
  const Tensor x = converted(self, dtype, "linalg.matrix_norm");
  const auto [rows, columns] = matrix_dims(x, dim);
  if (ord == "nuc") return restored(singular_values(x, rows, columns).sum(-1), rows, columns, keepdim);
  MICA_CHECK(ord == "fro", "linalg.matrix_norm: Order ", ord, " not supported.");
  const int64_t both[] = {rows, columns};
  return composite::linalg_vector_norm(x, 2, IntArrayRef(both), keepdim, std::nullopt);
}

// torch.norm with a name.
Tensor _norm_by_name(const Tensor& self, std::string_view p, OptionalIntArrayRef dim, bool keepdim,
                     std::optional<DType> dtype) {
  if (p == "nuc") {
    DimVector dims;
    for (int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
    return composite::linalg_named_matrix_norm(self, p, dim ? *dim : dims.ref(), keepdim, dtype);
  }
  MICA_CHECK(p == "fro", "linalg.matrix_norm: Order ", p, " not supported.");
  if (dim) MICA_CHECK(dim->size() <= 2, "linalg.matrix_norm: dim must be a 2-tuple. Got ", *dim);
  return mica::norm(self, Scalar(2), dim, keepdim, dtype);
}

Tensor linalg_norm(const Tensor& self, const std::optional<Scalar>& ord, OptionalIntArrayRef dim, bool keepdim,
                   std::optional<DType> dtype) {
  const bool matrices = (dim || ord) && of_matrices(self, dim);
  if (matrices && ord) return mica::linalg_matrix_norm(self, *ord, dim.value_or(IntArrayRef(kMatrix)), keepdim, dtype);
  return composite::linalg_vector_norm(self, ord.value_or(2), dim, keepdim, dtype);
}

Tensor linalg_named_norm(const Tensor& self, std::string_view ord, OptionalIntArrayRef dim, bool keepdim,
                         std::optional<DType> dtype) {
  if (!dim) of_matrices(self, dim);
  return mica::linalg_matrix_norm(self, ord, dim.value_or(IntArrayRef(kMatrix)), keepdim, dtype);
}

Tensor linalg_vecdot(const Tensor& x, const Tensor& y, int64_t dim) {
  check_floating(x, "linalg.vecdot");
  MICA_CHECK(x.dtype() == y.dtype(), "linalg.vecdot: Expected x and y to have the same dtype, but found x of type ",
             info(x.dtype()).legacy, " and y of type ", info(y.dtype()).legacy, " instead");
  return sum(mul(x.is_complex() ? x.conj() : x, y), dim);
}

Tensor linalg_cross(const Tensor& self, const Tensor& other, int64_t dim) {
  MICA_CHECK(self.dim() == other.dim(), "linalg.cross: inputs must have the same number of dimensions.");
  MICA_CHECK(self.size(dim) == 3 && other.size(dim) == 3, "linalg.cross: inputs dimension ", dim,
             " must have length 3. Got ", self.size(dim), " and ", other.size(dim));
  return mica::cross(self, other, dim);
}

Tensor linalg_multi_dot(TensorList tensors) {
  const size_t n = tensors.size();
  MICA_CHECK(n >= 2, "multi_dot(): expected at least 2 tensors but got ", n);
  std::vector<Tensor> matrices(tensors.begin(), tensors.end());
  const bool row = tensors[0].dim() == 1, column = tensors[n - 1].dim() == 1;
  if (row) matrices[0] = tensors[0].unsqueeze(0);
  if (column) matrices[n - 1] = tensors[n - 1].unsqueeze(-1);
  for (size_t i = 0; i < n; ++i) {
    const bool end = i == 0 || i == n - 1;
    MICA_CHECK(matrices[i].dim() == 2, "multi_dot(): ",
               i == 0       ? std::string("the first tensor")
               : i == n - 1 ? std::string("the last tensor")
                            : cat("tensor ", i),
               " must be ", end ? "1D or 2D" : "2D", " but got ", tensors[i].dim(), "D");
    MICA_CHECK(tensors[i].dtype() == tensors[0].dtype(),
               "multi_dot(): all tensors must have be the same dtype but tensor 0 is ", tensors[0].dtype(),
               " and tensor ", i, " ", tensors[i].dtype());
    MICA_CHECK(i == 0 || matrices[i - 1].size(1) == matrices[i].size(0), "multi_dot(): tensors ", i - 1, " and ", i,
               " with shapes ", tensors[i - 1].sizes(), " and ", tensors[i].sizes(), " cannot be multiplied");
  }
  Tensor product = mica::chain_matmul(TensorList(matrices));
  if (column) product = product.squeeze(-1);
  if (row) product = product.squeeze(0);
  return product;
}

Tensor linalg_matmul(const Tensor& self, const Tensor& other) { return mica::matmul(self, other); }
void linalg_matmul_out(const Tensor& out, const Tensor& self, const Tensor& other) {
  mica::matmul_out(out, self, other);
}

Tensor linalg_diagonal(const Tensor& A, int64_t offset, int64_t dim1, int64_t dim2) {
  return A.diagonal(offset, dim1, dim2);
}

}  // namespace mica::composite
