#include "layouts/sparse/gradients.h"

#include "layouts/sparse/parts.h"

namespace mica::formulas {

using namespace layouts::sparse;  // NOLINT: sparse tensors and their parts

namespace {

bool same_indices(const Tensor& a, const Tensor& b) {
  if (a.layout() != b.layout() || !(a.sizes() == b.sizes())) return false;
  const SparseParts &p = sparse_parts(a), &q = sparse_parts(b);
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.storage() == y.storage() && x.storage_offset() == y.storage_offset() && x.sizes() == y.sizes() &&
           x.strides() == y.strides();
  };
  if (!same(p.indices, q.indices)) {
    if (!(p.indices.sizes() == q.indices.sizes()) || p.indices.dtype() != q.indices.dtype()) return false;
    if (!mica::equal(p.indices, q.indices)) return false;
  }
  return !p.compressed.defined() || same(p.compressed, q.compressed) ||
         (p.compressed.dtype() == q.compressed.dtype() && p.compressed.sizes() == q.compressed.sizes() &&
          mica::equal(p.compressed, q.compressed));
}

Tensor coo_form(const Tensor& t) { return is_coo(t) ? t : mica::_convert_layout(t, Layout::SparseCoo); }

// The rows of a coalesced tensor's values that belong to keys; zeros for keys that it does not have.
Tensor look_up(const Tensor& coalesced, const Tensor& keys, IntArrayRef sizes) {
  const Tensor known = keys_of(parts_of(coalesced).indices.contiguous(), sizes);
  const Tensor values = values_of(coalesced);
  if (known.numel() == 0) {
    DimVector shape(values.sizes());
    shape[0] = keys.numel();
    return mica::zeros(shape, values.options());
  }
  const Tensor at = mica::searchsorted(known, keys).clamp_max(Scalar(known.numel() - 1));
  Tensor found = known.index_select(0, at).eq(keys);
  for (int64_t d = 1; d < values.dim(); ++d) found = found.unsqueeze(-1);
  return mica::where(found, values.index_select(0, at), Scalar(0));
}

}  // namespace

Tensor sparse_values_at(const Tensor& grad, const Tensor& pattern) {
  if (is_sparse(grad) && same_indices(grad, pattern)) return values_of(grad);
  if (is_compressed(pattern)) {
    const SparseParts& p = parts_of(pattern);
    if (p.values.dim() == 1 && pattern.dim() == 2) {
      const Places places = places_of(pattern);
      const Tensor flat = coo(mica::stack({places.rows, places.columns}), p.values, pattern.sizes());
      return sparse_values_at(grad, flat);
    }
    // Blocks and batches are treated as a COO tensor whose values lie block by block, in the pattern's own order.
    return sparse_values_at(grad, compressed_to_coo(pattern.detach())).reshape(p.values.sizes());
  }
  const SparseParts& p = parts_of(pattern);
  const IntArrayRef sizes = pattern.sizes().slice(0, static_cast<size_t>(p.sparse_dim));
  const Tensor keys = keys_of(p.indices.contiguous(), sizes);
  if (is_sparse(grad)) return look_up(coo_form(grad).coalesce(), keys, sizes);
  if (p.sparse_dim == 0) return grad.unsqueeze(0).expand(p.values.sizes());
  return grad.flatten(0, p.sparse_dim - 1).index_select(0, keys);
}

Tensor sparse_values_backward(const Tensor& grad, const Tensor& self) { return with_values(self, grad); }

Tensor sparse_to_dense_backward(const Tensor& grad, const Tensor& self, std::optional<bool> masked_grad) {
  if (masked_grad.value_or(true)) return mica::sparse_mask(grad, self);
  if (is_sparse(grad)) return mica::_convert_layout(grad, self.layout());
  const int64_t dense_dim = sparse_parts(self).dense_dim;
  if (is_coo(self)) return mica::to_sparse(grad, sparse_parts(self).sparse_dim);
  const Tensor& values = sparse_parts(self).values;
  const int64_t batch = sparse_parts(self).compressed.dim() - 1;
  DimVector block;
  if (has_blocks(self.layout())) block = {values.size(batch + 1), values.size(batch + 2)};
  return mica::_convert_layout(grad, self.layout(),
                               block.size() ? std::optional<IntArrayRef>(block.ref()) : std::nullopt, dense_dim);
}

Tensor sparse_convert_backward(const Tensor& grad, const Tensor& self) {
  if (!is_sparse(self)) return is_sparse(grad) ? grad.to_dense() : grad;
  return is_sparse(grad) && grad.layout() == self.layout() ? grad : mica::sparse_mask(grad, self);
}

Tensor sparse_mask_backward(const Tensor& grad, const Tensor& self) {
  if (!is_sparse(self)) return is_sparse(grad) ? grad.to_dense() : grad;
  return mica::sparse_mask(grad, self);
}

Tensor sparse_mm_grad_sparse(const Tensor& grad, const Tensor& mat1, const Tensor& mat2, bool masked) {
  const Tensor dense = is_sparse(grad) ? grad.to_dense() : grad;
  if (!masked) return mica::mm(dense, mat2.conj().t());
  return with_values(mat1, mica::_sparse_sampled_mm(mat1.detach(), dense, mat2.conj().t()));
}

Tensor sparse_mm_grad_dense(const Tensor& grad, const Tensor& mat1) {
  const Tensor dense = is_sparse(grad) ? grad.to_dense() : grad;
  const Tensor turned = mat1.transpose(0, 1);
  return mica::_sparse_dense_mm(turned.is_complex() ? turned.conj_physical() : turned, dense, true);
}

Tensor sparse_sparse_grad_left(const Tensor& grad, const Tensor& mat1, const Tensor& mat2) {
  const Tensor turned = mat2.transpose(0, 1);
  const Tensor whole = mica::_sparse_mm(is_sparse(grad) ? grad : grad.to_sparse(),
                                        turned.is_complex() ? turned.conj_physical() : turned);
  return mica::sparse_mask(whole, mat1);
}

Tensor sparse_sparse_grad_right(const Tensor& grad, const Tensor& mat1, const Tensor& mat2) {
  const Tensor turned = mat1.transpose(0, 1);
  const Tensor whole = mica::_sparse_mm(turned.is_complex() ? turned.conj_physical() : turned,
                                        is_sparse(grad) ? grad : grad.to_sparse());
  return mica::sparse_mask(whole, mat2);
}

Tensor sparse_mm_product(const Tensor& values, const Tensor& pattern, const Tensor& dense, bool transposed) {
  const Tensor matrix = with_values(pattern.detach(), values);
  // d(a b)_ij / d a = b^T, and for b the other way round.
  if (!transposed) return mica::_sparse_dense_mm(matrix, dense.conj().t(), true);
  const Tensor product = mica::_sparse_dense_mm(matrix.transpose(0, 1), dense.conj(), true);
  return product.t();
}

}  // namespace mica::formulas

namespace mica::composite {

using namespace layouts::sparse;  // NOLINT: the operations of sparse tensors

Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  MICA_CHECK(is_sparse(mask), "sparse_mask(): expected `mask` to be sparse, but got layout ", mask.layout());
  MICA_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
             self.sizes(), " but mask has size ", mask.sizes());
  const Tensor pattern = is_coo(mask) ? mask.detach().coalesce() : mask.detach();
  return with_values(pattern, formulas::sparse_values_at(self, pattern));
}

}  // namespace mica::composite
