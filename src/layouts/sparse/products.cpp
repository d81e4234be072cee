// Products with sparse matrices.
#include "core/entry.h"
#include "layouts/sparse/parts.h"
#include "mica/generated/layouts/sparse.h"

namespace mica::composite {

using namespace layouts::sparse;  // NOLINT: the operations of sparse tensors

namespace {

void check_matrices(const char* op, const Tensor& a, const Tensor& b) {
  MICA_CHECK(a.dim() == 2 && b.dim() == 2, op, ": Expected matrices, but got tensors of size ", a.sizes(), " and ",
             b.sizes());
  MICA_CHECK(a.size(1) == b.size(0), op, ": Argument #3: Expected dim 0 size ", a.size(1), ", got ", b.size(0),
             " (mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x", a.size(1), " and ", b.size(0), "x",
             b.size(1), "))");
  MICA_CHECK(a.dtype() == b.dtype(), op, ": expected both matrices to have the same dtype, but got ", a.dtype(),
             " and ", b.dtype());
}

// A matrix of blocks is multiplied as a matrix of their elements.
Tensor without_blocks(const Tensor& t) { return has_blocks(t.layout()) ? compressed_to_coo(t) : t; }

}  // namespace

Tensor _sparse_dense_mm(const Tensor& mat1, const Tensor& mat2, bool) {
  check_matrices("mm", mat1, mat2);
  const Tensor dense = mat2.resolve_conj().resolve_neg().contiguous();
  const Tensor out = mica::empty({mat1.size(0), mat2.size(1)}, mat2.options());
  const Rows rows = rows_of(without_blocks(mat1));
  if (out.numel() > 0) MICA_LAYER_KERNEL(out.device(), sparse_csr_mm)
  (out.view_of(), rows.begins.view_of(), rows.columns.view_of(), rows.values.view_of(), dense.view_of(), false);
  return out;
}

// Pairs every element of mat1 with each element of mat2 in the row of its column, then sums the products that fall on
// one place.
Tensor _sparse_sparse_mm(const Tensor& mat1, const Tensor& mat2) {
  check_matrices("mm", mat1, mat2);
  const Places left = places_of(without_blocks(mat1));
  const Tensor left_values = parts_of(without_blocks(mat1)).values;
  const Rows right = rows_of(without_blocks(mat2));
  const Tensor lengths = right.begins.narrow(0, 1, mat2.size(0)).sub(right.begins.narrow(0, 0, mat2.size(0)));
  const Tensor pairs = lengths.index_select(0, left.columns);  // one number for each element of mat1
  const Tensor element = mica::arange(Scalar(left.columns.numel()), left.columns.options()).repeat_interleave(pairs);
  const int64_t n = element.numel();
  const Tensor before = pairs.cumsum(0).sub(pairs);
  const Tensor first = right.begins.index_select(0, left.columns);
  const Tensor at = mica::arange(Scalar(n), element.options())
                        .sub(before.index_select(0, element))
                        .add(first.index_select(0, element));
  const Tensor indices = mica::stack({left.rows.index_select(0, element), right.columns.index_select(0, at)});
  const Tensor values = left_values.index_select(0, element).mul(right.values.index_select(0, at));
  const Tensor product = wrap_coo(indices, values, {mat1.size(0), mat2.size(1)}, false).coalesce();
  return is_coo(mat1) ? product : mica::_convert_layout(product, Layout::SparseCsr);
}

Tensor _sparse_mm(const Tensor& sparse, const Tensor& dense) {
  MICA_CHECK(is_sparse(sparse) || is_sparse(dense), "torch.sparse.mm: expected a sparse matrix, but got layouts ",
             sparse.layout(), " and ", dense.layout());
  if (is_sparse(sparse) && is_sparse(dense)) return mica::_sparse_sparse_mm(sparse, dense);
  if (is_sparse(sparse)) return mica::_sparse_dense_mm(sparse, dense, true);
  // dense @ sparse, by way of (sparse^T @ dense^T)^T
  return mica::_sparse_dense_mm(dense.transpose(0, 1), sparse.t(), true).t();
}

Tensor _sparse_mm(const Tensor& sparse, const Tensor& dense, std::string_view reduce) {
  MICA_CHECK(sparse.layout() == Layout::SparseCsr && !is_sparse(dense),
             "torch.sparse.mm: reduce is only supported for a CSR matrix times a strided one, but got layouts ",
             sparse.layout(), " and ", dense.layout());
  if (reduce == "sum") return mica::_sparse_mm(sparse, dense);
  if (reduce == "max") reduce = "amax";
  if (reduce == "min") reduce = "amin";
  MICA_CHECK(reduce == "mean" || reduce == "amax" || reduce == "amin",
             "reduce argument must be either sum, prod, mean, amax or amin, got ", reduce);
  check_matrices("mm", sparse, dense);
  const Places places = places_of(sparse);
  if (reduce == "mean") {
    const Tensor begins = int64_indices(sparse_parts(sparse).compressed);
    const int64_t n = sparse.size(0);
    const Tensor lengths = begins.narrow(0, 1, n).sub(begins.narrow(0, 0, n)).clamp_min(1).to(dense.dtype());
    return mica::_sparse_mm(sparse, dense).div(lengths.unsqueeze(1));
  }
  const Tensor terms = values_of(sparse).unsqueeze(1).mul(dense.index_select(0, places.columns));
  const Tensor zeros = mica::zeros({sparse.size(0), dense.size(1)}, dense.options());
  const Tensor rows = places.rows.unsqueeze(1).expand({-1, dense.size(1)});
  const Tensor best = zeros.scatter_reduce(0, rows, terms.detach(), reduce, false);
  const int64_t count = terms.size(0);
  if (count == 0 || !grad_enabled() || !terms.requires_grad()) return best;
  // Of equal terms the first is the result, and the gradient belongs to it.
  const Tensor numbers = mica::arange(count, places.rows.options()).unsqueeze(1).expand_as(terms);
  const Tensor wins = terms.detach().eq(best.gather(0, rows)).logical_or(terms.detach().isnan());
  const Tensor candidates = mica::where(wins, numbers, mica::full_like(numbers, count));
  const Tensor first = mica::full(best.sizes(), count, numbers.options()).scatter_reduce(0, rows, candidates, "amin");
  const Tensor chosen = terms.gather(0, first.clamp_max(count - 1));
  return mica::where(first.lt(count), chosen, zeros);
}

Tensor _sparse_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha) {
  const Tensor product = mica::_sparse_mm(mat1, mat2);
  const Tensor scaled = alpha == Scalar(1) ? product : product.mul(alpha);
  if (beta == Scalar(0)) return scaled;
  return mica::add(scaled, self.expand_as(scaled), beta);
}

Tensor _sparse_sampled_mm(const Tensor& pattern, const Tensor& mat1, const Tensor& mat2) {
  const Tensor a = mat1.resolve_conj().contiguous(), b = mat2.t().resolve_conj().contiguous();
  if (has_blocks(pattern.layout())) {
    const Tensor flat = compressed_to_coo(pattern);
    return composite::_sparse_sampled_mm(flat, mat1, mat2).reshape(sparse_parts(pattern).values.sizes());
  }
  const Places places = places_of(pattern);
  const Tensor out = mica::empty({places.rows.numel()}, mat1.options());
  if (out.numel() > 0) MICA_LAYER_KERNEL(out.device(), sparse_sampled_mm)
  (out.view_of(), places.rows.view_of(), places.columns.view_of(), a.view_of(), b.view_of());
  return out;
}

Tensor sparse_sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                            const Scalar& alpha) {
  MICA_CHECK(is_sparse(self) && !has_blocks(self.layout()),
             "sampled_addmm: Expected self to be a CSR, CSC or COO matrix, but got ", self.layout());
  MICA_CHECK(!is_sparse(mat1) && !is_sparse(mat2), "sampled_addmm: Expected mat1 and mat2 to have strided layout");
  MICA_CHECK(self.dim() == 2, "sampled_addmm: Expected self to be a matrix, but got size ", self.sizes());
  check_matrices("sampled_addmm", mat1, mat2);
  MICA_CHECK(self.size(0) == mat1.size(0) && self.size(1) == mat2.size(1), "sampled_addmm: Expected self of shape [",
             mat1.size(0), ", ", mat2.size(1), "], but got ", self.sizes());
  MICA_CHECK(self.dtype() == mat1.dtype(), "sampled_addmm: Expected mat1 and self to have the same dtype, but got ",
             mat1.dtype(), " and ", self.dtype());
  const Tensor pattern = is_coo(self) ? self.coalesce() : self;
  const Tensor product = mica::_sparse_sampled_mm(pattern.detach(), mat1, mat2).mul(alpha);
  if (beta == Scalar(0)) return with_values(pattern, product);
  return with_values(pattern, mica::add(product, values_of(pattern), beta));
}

Tensor smm(const Tensor& self, const Tensor& mat2) { return mica::_sparse_mm(self, mat2).to_sparse(); }

Tensor hspmm(const Tensor& mat1, const Tensor& mat2) {
  require_coo("hspmm", mat1);
  const Tensor dense = mica::_sparse_mm(mat1, mat2);
  const Tensor rows = std::get<0>(mica::_unique2(parts_of(mat1).indices.select(0, 0)));
  return coo(rows.unsqueeze(0), dense.index_select(0, rows), dense.sizes(), true);
}

Tensor sspaddmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  require_coo("sspaddmm", self);
  return mica::add(mica::smm(mat1, mat2).mul(alpha), self, beta);
}

}  // namespace mica::composite

namespace mica::layouts::sparse {

Tensor mm(const Tensor& self, const Tensor& mat2) { return mica::_sparse_mm(self, mat2); }

Tensor mv(const Tensor& self, const Tensor& vec) {
  MICA_CHECK(self.dim() == 2 && vec.dim() == 1, "mv: two tensor dim should be 2 and 1, but got ", self.dim(), " and ",
             vec.dim());
  return mica::_sparse_mm(self, vec.unsqueeze(1)).squeeze(1);
}

Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  if (!is_sparse(mat1) && !is_sparse(mat2)) entry::refuse_layout("addmm", std::vector<Tensor>{self});
  return mica::_sparse_addmm(self, mat1, mat2, beta, alpha);
}

Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta, const Scalar& alpha) {
  const Tensor product = sparse::mv(mat, vec).mul(alpha);
  return beta == Scalar(0) ? product : mica::add(product, self.expand_as(product), beta);
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  MICA_CHECK(self.dim() == 3 && mat2.dim() == 3, "bmm: batch1 and batch2 must be 3D tensors");
  MICA_CHECK(self.size(0) == mat2.size(0), "bmm: Expected size for first two dimensions of batch2 tensor to be: [",
             self.size(0), ", ", self.size(2), "] but got: [", mat2.size(0), ", ", mat2.size(1), "].");
  std::vector<Tensor> products;
  for (int64_t b = 0; b < self.size(0); ++b) products.push_back(mica::mm(self.select(0, b), mat2.select(0, b)));
  if (products.empty()) return mica::zeros({0, self.size(1), mat2.size(2)}, mat2.options());
  return mica::stack(products);
}

Tensor matmul(const Tensor& self, const Tensor& other) {
  MICA_CHECK(self.dim() > 0 && other.dim() > 0, "both arguments to matmul need to be at least 1D, but they are ",
             self.dim(), "D and ", other.dim(), "D");
  if (self.dim() == 2 && other.dim() == 2) return mica::mm(self, other);
  if (self.dim() == 2 && other.dim() == 1) return mica::mv(self, other);
  if (self.dim() == 1 && other.dim() == 2) return mica::mv(other.t(), self);
  if (self.dim() == 3 && other.dim() == 3) return mica::bmm(self, other);
  if (self.dim() == 1 && other.dim() == 1) return mica::dot(self, other);
  entry::refuse_layout("matmul", std::vector<Tensor>{self, other});
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  MICA_CHECK(input.dim() == 2 || !is_sparse(input), "linear: a sparse input must be a matrix, but has size ",
             input.sizes());
  const Tensor flat = input.dim() == 2 ? input : input.reshape({-1, input.size(-1)});
  Tensor product = mica::mm(flat, weight.t());
  if (bias.defined()) product = product.add(bias);
  if (input.dim() == 2) return product;
  DimVector sizes(input.sizes());
  sizes[sizes.size() - 1] = weight.size(0);
  return product.reshape(sizes);
}

}  // namespace mica::layouts::sparse
