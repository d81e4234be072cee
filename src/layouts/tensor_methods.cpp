// Tensor's methods for sparse and quantized layouts: functions of ops/layers/ under their torch names.
#include "mica/generated/layers/sparse.h"
#include "mica/tensor.h"

namespace mica {

Tensor Tensor::coalesce() const { return mica::coalesce(*this); }
bool Tensor::is_coalesced() const { return mica::is_coalesced(*this); }
Tensor Tensor::indices() const { return mica::_coalesced_indices(*this); }
Tensor Tensor::values() const { return mica::_checked_values(*this); }
Tensor Tensor::_indices() const { return mica::_indices(*this); }
Tensor Tensor::_values() const { return mica::_values(*this); }
Tensor Tensor::crow_indices() const { return mica::crow_indices(*this); }
Tensor Tensor::col_indices() const { return mica::col_indices(*this); }
Tensor Tensor::ccol_indices() const { return mica::ccol_indices(*this); }
Tensor Tensor::row_indices() const { return mica::row_indices(*this); }
int64_t Tensor::sparse_dim() const { return mica::sparse_dim(*this); }
int64_t Tensor::dense_dim() const { return mica::dense_dim(*this); }
int64_t Tensor::_nnz() const { return mica::_nnz(*this); }
Tensor Tensor::to_dense(std::optional<DType> dtype, std::optional<bool> masked_grad) const {
  return mica::to_dense(*this, dtype, masked_grad);
}
Tensor Tensor::to_sparse() const { return mica::to_sparse(*this); }
Tensor Tensor::to_sparse(int64_t sparse_dim) const { return mica::to_sparse(*this, sparse_dim); }
Tensor Tensor::to_sparse_csr(std::optional<int64_t> dense_dim) const { return mica::to_sparse_csr(*this, dense_dim); }
Tensor Tensor::to_sparse_csc(std::optional<int64_t> dense_dim) const { return mica::to_sparse_csc(*this, dense_dim); }
Tensor Tensor::to_sparse_bsr(IntArrayRef blocksize, std::optional<int64_t> dense_dim) const {
  return mica::to_sparse_bsr(*this, blocksize, dense_dim);
}
Tensor Tensor::to_sparse_bsc(IntArrayRef blocksize, std::optional<int64_t> dense_dim) const {
  return mica::to_sparse_bsc(*this, blocksize, dense_dim);
}
Tensor Tensor::sparse_mask(const Tensor& mask) const { return mica::sparse_mask(*this, mask); }

}  // namespace mica
