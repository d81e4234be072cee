#include "autograd/formulas.h"
#include "core/geometry.h"

namespace mica::formulas {

TensorVec cat_backward(const Tensor& grad, const std::vector<DimVector>& sizes, const std::vector<DType>& dtypes, int64_t dim) {
  TensorVec result(sizes.size());
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].size() == 1 && sizes[i][0] == 0) {
      result[i] = zeros({0}, grad.options().with_dtype(dtypes[i]));
      continue;
    }
    const int64_t d = wrap_dim(dim, grad.dim());
    Tensor piece = grad.narrow(d, at, sizes[i][d]);
    result[i] = is_complex(dtypes[i]) || !grad.is_complex() ? piece : real(piece);
    at += sizes[i][d];
  }
  return result;
}

Tensor index_add_source_backward(const Tensor& grad, int64_t dim, const Tensor& index, IntArrayRef source_sizes, const Scalar& alpha) {
  return scaled(grad.index_select(dim, index).expand(source_sizes), alpha);
}

Tensor index_select_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, const Tensor& index) {
  if (sizes.empty()) return grad.sum().reshape({});
  return zeros(sizes, grad.options()).index_add(dim, index, grad);
}

}  // namespace mica::formulas
