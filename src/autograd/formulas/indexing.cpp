#include "autograd/formulas/indexing.h"

#include "autograd/formulas/formulas.h"
#include "autograd/formulas/seen.h"
#include "core/geometry.h"
#include "mica/generated/layers/sparse.h"

namespace mica::formulas {

TensorVec cat_backward(const Tensor& grad, const std::vector<DimVector>& sizes, const std::vector<DType>& dtypes,
                       int64_t dim) {
  TensorVec result(sizes.size());
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].size() == 1 && sizes[i][0] == 0) {
      result[i] = zeros({0}, grad.options().dtype(dtypes[i]));
      continue;
    }
    const int64_t d = wrap_dim(dim, grad.dim());
    Tensor piece = grad.narrow(d, at, sizes[i][d]);
    result[i] = is_complex(dtypes[i]) || !grad.is_complex() ? piece : real(piece);
    at += sizes[i][d];
  }
  return result;
}

// ---- x[...]

Tensor index_backward(const Tensor& grad, IntArrayRef sizes, TensorList indices) {
  if (is_seen()) return grad.new_zeros(sizes, grad.options().layout(Layout::Strided)).index_put(indices, grad, true);
  const Tensor result = zeros_like_gradient(grad, sizes);
  // A single mask reads every place once; integers may read one many times.
  const bool once = indices.size() == 1 && indices[0].dtype() == DType::Bool;
  return result.index_put_(indices, grad, !once);
}

Tensor index_put_self_backward(const Tensor& grad, TensorList indices, bool accumulate) {
  return accumulate ? grad : grad.index_put(indices, zeros_like_gradient(grad, {}));
}

Tensor index_put_values_backward(const Tensor& grad, TensorList indices, IntArrayRef values_sizes) {
  return grad.index(indices).sum_to_size(values_sizes);
}

// ---- slices of a dimension

Tensor index_zeroed(const Tensor& grad, int64_t dim, const Tensor& index) { return grad.index_fill(dim, index, 0); }

Tensor index_select_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, const Tensor& index) {
  if (is_seen()) return grad.new_zeros(sizes, grad.options().layout(Layout::Strided)).index_add(dim, index, grad);
  return zeros_like_gradient(grad, sizes).index_add_(dim, index, grad);
}

Tensor index_add_source_backward(const Tensor& grad, int64_t dim, const Tensor& index, IntArrayRef source_sizes,
                                 const Scalar& alpha) {
  return scaled(grad.index_select(dim, index).reshape(source_sizes), alpha);
}

Tensor index_copy_source_backward(const Tensor& grad, int64_t dim, const Tensor& index, IntArrayRef source_sizes) {
  return grad.index_select(dim, index).reshape(source_sizes);
}

std::tuple<Tensor, Tensor> index_reduce_backward(const Tensor& grad, const Tensor& self, int64_t dim,
                                                 const Tensor& index, const Tensor& source, std::string_view reduce,
                                                 bool include_self, const Tensor& result) {
  if (source.dim() == 0)
    return scatter_reduce_backward(grad, self, dim, index.reshape({}), source, reduce, include_self, result);
  const int64_t d = wrap_dim(dim, source.dim());
  DimVector shape(source.dim(), 1);
  shape[d] = index.numel();
  return scatter_reduce_backward(grad, self, d, index.reshape(shape).expand(source.sizes()), source, reduce,
                                 include_self, result);
}

// ---- one index per element

namespace {

// The part of a source that has the index's shape.
Tensor used_part(const Tensor& src, const Tensor& index) {
  Tensor part = src;
  for (int64_t d = 0; d < src.dim(); ++d)
    if (index.dim() == src.dim() && index.size(d) < src.size(d)) part = part.narrow(d, 0, index.size(d));
  return part;
}

// A gradient of the used part, with zeros for the rest.
Tensor with_unused(const Tensor& grad, IntArrayRef src_sizes, const Tensor& index) {
  if (grad.sizes() == src_sizes) return grad;
  const Tensor whole = zeros_like_gradient(grad, src_sizes);
  used_part(whole, index).copy_(grad);
  return whole;
}

}  // namespace

Tensor gather_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, const Tensor& index, bool sparse_grad) {
  if (sparse_grad) {
    // One element of the gradient for each that was gathered.
    const int64_t d = wrap_dim(dim, static_cast<int64_t>(sizes.size()));
    std::vector<Tensor> places;
    // A scalar has one element and no dimension. A scalar index names a place in the only dimension there is.
    if (sizes.size() == 1 && index.dim() == 0) places.push_back(index.reshape({-1}));
    for (int64_t i = 0; i < index.dim() && !sizes.empty(); ++i) {
      DimVector shape(static_cast<size_t>(index.dim()), 1);
      shape[i] = index.size(i);
      places.push_back(
          i == d ? index.reshape({-1})
                 : arange(Scalar(index.size(i)), index.options()).reshape(shape).expand(index.sizes()).reshape({-1}));
    }
    const Tensor indices = places.empty() ? empty({0, grad.numel()}, index.options()) : stack(places);
    return _sparse_coo_tensor_unsafe(indices, grad.reshape({-1}), sizes);
  }
  if (is_seen()) return grad.new_zeros(sizes).scatter_add(dim, index, grad);
  return zeros_like_gradient(grad, sizes).scatter_add_(dim, index, grad);
}

Tensor scatter_src_backward(const Tensor& grad, IntArrayRef src_sizes, int64_t dim, const Tensor& index) {
  return with_unused(grad.gather(dim, index), src_sizes, index);
}

namespace {

struct ReduceGrads {
  Tensor self, src;
};

ReduceGrads mean_grads(const Tensor& grad, const Tensor& index, const Tensor& src, int64_t dim, bool include_self) {
  Tensor counts = include_self ? ones_like(grad) : zeros_like(grad);
  counts = counts.scatter_add(dim, index, ones(src.sizes(), grad.options()));
  const Tensor shared = grad / counts.masked_fill(counts == 0, 1);
  return {shared, shared.gather(dim, index)};
}

// Where several elements are the extreme one, they share its gradient.
ReduceGrads extreme_grads(const Tensor& grad, const Tensor& self, const Tensor& index, const Tensor& src, int64_t dim,
                          bool include_self, const Tensor& result) {
  Tensor self_is = (self == result).to(grad.dtype());
  if (!include_self) self_is = self_is.scatter(dim, index, 0);
  const Tensor src_is = (src == result.gather(dim, index)).to(grad.dtype());
  const Tensor shared = grad / self_is.scatter_add(dim, index, src_is);
  return {shared * self_is, shared.gather(dim, index) * src_is};
}

// The derivative by a factor is the product of the others. It is the product divided by the factor, except for a zero:
// then it is the product with that factor left out, which is zero itself if there is another zero.
ReduceGrads product_grads(const Tensor& grad, const Tensor& self, const Tensor& index, const Tensor& src, int64_t dim,
                          bool include_self, const Tensor& result) {
  const Tensor nonzero_self = self.masked_fill(self == 0, 1);
  const Tensor by_self = grad * nonzero_self.scatter_reduce(dim, index, src, "prod", include_self) / nonzero_self;
  const Tensor is_zero = src == 0;
  const Tensor zeros_there = zeros_like(self).scatter_add(dim, index, is_zero.to(self.dtype())).gather(dim, index);
  MICA_CHECK(!grad_enabled() || !(zeros_there > 1).any().item<bool>(),
             "scatter_reduce(): Double backward is unsupported for src when >1 zeros in src are scattered to the same "
             "position in self");
  const Tensor only_zero = logical_and(is_zero, zeros_there == 1);
  const Tensor without_it = self.scatter_reduce(dim, index, src.masked_fill(only_zero, 1), "prod", include_self);
  const Tensor by_src = where(only_zero, (grad * without_it).gather(dim, index),
                              (grad * result).gather(dim, index) / src.masked_fill(is_zero, 1));
  return {by_self, by_src};
}

}  // namespace

std::tuple<Tensor, Tensor> scatter_reduce_backward(const Tensor& grad, const Tensor& self, int64_t dim,
                                                   const Tensor& index, const Tensor& src, std::string_view reduce,
                                                   bool include_self, const Tensor& result) {
  const Tensor used = used_part(src, index);
  ReduceGrads grads;
  if (reduce == "sum") {
    grads = {grad, grad.gather(dim, index)};
  } else if (reduce == "mean") {
    grads = mean_grads(grad, index, used, dim, include_self);
  } else if (reduce == "prod") {
    grads = product_grads(grad, self, index, used, dim, include_self, result);
  } else {
    grads = extreme_grads(grad, self, index, used, dim, include_self, result);
  }
  if (!include_self) grads.self = grads.self.scatter(dim, index, 0);
  return {grads.self, with_unused(grads.src, src.sizes(), index)};
}

Tensor take_backward(const Tensor& grad, IntArrayRef sizes, const Tensor& index) {
  return zeros_like_gradient(grad, sizes).put_(index, grad, true);
}

// ---- masks

Tensor masked_select_backward(const Tensor& grad, IntArrayRef sizes, const Tensor& mask) {
  return zeros_like_gradient(grad, broadcast_sizes(sizes, mask.sizes())).masked_scatter_(mask, grad);
}

Tensor masked_scatter_source_backward(const Tensor& grad, const Tensor& mask, IntArrayRef source_sizes) {
  const Tensor used = grad.masked_select(mask);
  const Tensor flat = zeros_like_gradient(grad, IntArrayRef(count_elements(source_sizes)));
  flat.narrow(0, 0, used.numel()).copy_(used);
  return flat.view(source_sizes);
}

// ---- views written into copies

namespace {

// The gradient laid out as the tensor whose storage as_strided_scatter reads, beginning at element zero of a storage.
Tensor laid_out(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, int64_t offset, int64_t reach) {
  const Extent own = extent(sizes, strides);
  const Tensor storage = zeros_like_gradient(grad, IntArrayRef(std::max(offset + own.high, reach)));
  storage.as_strided(sizes, strides, offset).copy_(grad);
  return storage;
}

}  // namespace

Tensor as_strided_scatter_self_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, int64_t offset,
                                        IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset) {
  const int64_t from = storage_offset.value_or(offset);
  const Tensor storage = laid_out(grad, sizes, strides, offset, from + extent(size, stride).high);
  storage.as_strided(size, stride, from).zero_();
  return storage.as_strided(sizes, strides, offset);
}

Tensor as_strided_scatter_src_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, int64_t offset,
                                       IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset) {
  const int64_t from = storage_offset.value_or(offset);
  return laid_out(grad, sizes, strides, offset, from + extent(size, stride).high).as_strided(size, stride, from);
}

// ---- tables of rows

// A COO gradient that holds one row for each index, in their order.
Tensor embedding_sparse_backward(const Tensor& grad, const Tensor& indices, int64_t rows, int64_t padding_idx,
                                 bool scale_grad_by_freq) {
  MICA_CHECK(!scale_grad_by_freq, "embedding_backward: scale_grad_by_freq not supported with sparse gradients");
  const int64_t width = grad.size(-1);
  Tensor flat = indices.to(DType::Int64).reshape({-1}), values = grad.reshape({flat.numel(), width});
  if (padding_idx >= 0) {
    const Tensor counted = flat.ne(Scalar(padding_idx)).nonzero().squeeze(1);
    flat = flat.index_select(0, counted);
    values = values.index_select(0, counted);
  }
  // The gradient outlives this pass, and a program may change its indices before the next.
  if (flat.storage() == indices.storage()) flat = flat.clone();
  const Tensor places = flat.unsqueeze(0);
  if (is_seen()) {
    const int64_t sparse_dim = 1, dense_dim = 1, shape[] = {rows, width};
    const IntArrayRef sizes(shape);
    const TensorOptions options = values.options().layout(Layout::SparseCoo);
    return seen_one("_sparse_coo_tensor_with_dims_and_tensors",
                    {sparse_dim, dense_dim, sizes, places, values, options, std::optional<bool>()}, {values},
                    [=](const TensorVec& t) -> TensorVec {
                      return {_sparse_coo_tensor_unsafe(places, t[0], {rows, width})};
                    });
  }
  return _sparse_coo_tensor_unsafe(places, values, {rows, width});
}

Tensor embedding_backward(const Tensor& grad, const Tensor& indices, IntArrayRef weight_sizes, int64_t padding_idx,
                          bool scale_grad_by_freq, bool sparse) {
  if (sparse) return embedding_sparse_backward(grad, indices, weight_sizes[0], padding_idx, scale_grad_by_freq);
  return embedding_dense_backward(grad, indices, weight_sizes[0], padding_idx, scale_grad_by_freq);
}

Tensor embedding_double_backward(const Tensor& grad, const Tensor& indices, int64_t padding_idx,
                                 bool scale_grad_by_freq) {
  const Tensor flat = indices.to(DType::Int64).reshape({-1});
  Tensor rows = grad.index_select(0, flat);
  if (scale_grad_by_freq) {
    const Tensor counts =
        zeros_like_gradient(grad, IntArrayRef(grad.size(0))).index_add_(0, flat, ones(flat.sizes(), grad.options()));
    rows = rows / counts.index_select(0, flat).unsqueeze(1);
  }
  if (padding_idx >= 0) rows = rows.masked_fill((flat == padding_idx).unsqueeze(1), 0);
  DimVector sizes(indices.sizes());
  sizes.push_back(grad.size(1));
  return rows.view(sizes);
}

}  // namespace mica::formulas
