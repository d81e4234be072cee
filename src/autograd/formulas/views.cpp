#include <algorithm>
#include <limits>

#include "autograd/formulas/formulas.h"
#include "autograd/formulas/seen.h"
#include "core/geometry.h"

namespace mica::formulas {

Tensor scaled(const Tensor& grad, const Scalar& factor) {
  const Scalar f = factor.conj();
  return f == Scalar(1) || f == Scalar(1.0) ? grad : grad * f;
}

int64_t unsqueezed_dim(int64_t dim, int64_t ndim) { return wrap_dim(dim, ndim + 1); }

Tensor not_implemented(const char* op, const char* argument) {
  fail(ErrorKind::NotImplemented, cat("the derivative for '", argument, "' of '", op, "' is not implemented"));
}

Tensor div_other_backward(const Tensor& grad, const Tensor& self, const Tensor& other) {
  return -grad * conj_of((self / other) / other);
}

// A real tensor may have been copied into a complex one. Only the real part of the gradient is its own.
Tensor copy_src_backward(const Tensor& grad, const TensorOptions& src) {
  return grad.is_complex() && !is_complex(src.dtype()) ? mica::real(grad).to(src) : grad.to(src);
}

// The gradient of reading through (size, stride, offset): each element of the base sums the gradients of all its
// readers.
Tensor as_strided_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, int64_t base_offset,
                           IntArrayRef size, IntArrayRef stride, std::optional<int64_t> offset) {
  const int64_t view_offset = offset.value_or(base_offset);
  Extent base = extent(sizes, strides), view = extent(size, stride);
  const int64_t low = std::min(base_offset + base.low, view_offset + view.low);
  const int64_t high = std::max(base_offset + base.high, view_offset + view.high);
  Tensor flat = new_zeros(grad, {std::max<int64_t>(high - low, 0)});
  if (grad.numel() > 0) {
    if (has_internal_overlap(size, stride)) {
      Tensor positions =
          arange(0, flat.numel(), 1, grad.options().dtype(DType::Int64)).as_strided(size, stride, view_offset - low);
      flat = flat.index_add(0, positions.reshape({-1}), grad.reshape({-1}));
    } else {
      flat.as_strided(size, stride, view_offset - low).copy_(grad);
    }
  }
  if (has_internal_overlap(sizes, strides)) {
    // Where several indices of the input name one element, they share its gradient.
    Tensor count = zeros_like(flat);
    Tensor positions = arange(0, flat.numel(), 1, grad.options().dtype(DType::Int64))
                           .as_strided(sizes, strides, base_offset - low)
                           .reshape({-1});
    count = count.index_add(0, positions, new_ones(grad, {positions.numel()}));
    flat = flat / count;
  }
  return flat.as_strided(sizes, strides, base_offset - low);
}

Tensor select_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t index) {
  if (is_seen()) {
    const DimVector own(sizes);
    return seen_one("select_backward", {grad, sizes, dim, index}, {grad}, [=](const TensorVec& t) -> TensorVec {
      return {select_scatter(zeros(own, t[0].options()), t[0], dim, index)};
    });
  }
  Tensor result = zeros_like_gradient(grad, sizes);
  result.select(dim, index).copy_(grad);
  return result;
}

Tensor slice_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, std::optional<int64_t> start,
                      std::optional<int64_t> end, int64_t step) {
  if (is_seen() && step > 0) {  // torch's operator takes no other step
    const DimVector own(sizes);
    const int64_t from = start.value_or(0), to = end.value_or(std::numeric_limits<int64_t>::max());
    return seen_one("slice_backward", {grad, sizes, dim, from, to, step}, {grad}, [=](const TensorVec& t) -> TensorVec {
      return {slice_scatter(zeros(own, t[0].options()), t[0], dim, start, end, step)};
    });
  }
  Tensor result = zeros_like_gradient(grad, sizes);
  slice(result, dim, start, end, step).copy_(grad);
  return result;
}

Tensor permute_backward(const Tensor& grad, IntArrayRef dims) {
  DimVector inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i)
    inverse[wrap_dim(dims[i], static_cast<int64_t>(dims.size()))] = static_cast<int64_t>(i);
  return grad.permute(inverse);
}

Tensor unfold_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t size, int64_t step) {
  const int64_t ndim = static_cast<int64_t>(sizes.size());
  if (ndim == 0) return grad.sum().reshape({});
  if (is_seen()) {
    const DimVector own(sizes);
    return seen_one("unfold_backward", {grad, sizes, dim, size, step}, {grad},
                    [=](const TensorVec& t) -> TensorVec { return {unfold_backward(t[0], own, dim, size, step)}; });
  }
  const int64_t d = wrap_dim(dim, ndim);
  Tensor positions =
      arange(0, sizes[d], 1, TensorOptions(DType::Int64).device(grad.device())).unfold(0, size, step).reshape({-1});
  // Each window is brought next to its dimension, so that one index_add sums all of them.
  Tensor windows = grad.movedim(-1, d + 1).flatten(d, d + 1);
  return zeros_like_gradient(grad, sizes).index_add(d, positions, windows);
}

Tensor diagonal_backward(const Tensor& grad, IntArrayRef sizes, int64_t offset, int64_t dim1, int64_t dim2) {
  if (is_seen()) {
    const DimVector own(sizes);
    return seen_one("diagonal_backward", {grad, sizes, offset, dim1, dim2}, {grad},
                    [=](const TensorVec& t) -> TensorVec {
                      return {diagonal_scatter(zeros(own, t[0].options()), t[0], offset, dim1, dim2)};
                    });
  }
  Tensor result = zeros_like_gradient(grad, sizes);
  result.diagonal(offset, dim1, dim2).copy_(grad);
  return result;
}

namespace {

// The gradients as one tensor where they lie side by side in memory already, as those of attention do; else an
// undefined one.
Tensor joined_in_memory(const TensorVec& grads, int64_t dim) {
  if (grad_enabled() || grads.size() < 2 || !grads[0].defined() || grads[0].numel() == 0) return {};
  const Tensor& first = grads[0];
  int64_t next = first.storage_offset(), width = 0;
  for (const Tensor& g : grads) {
    if (!g.defined() || g.is_conj() || g.is_neg() || g.dtype() != first.dtype()) return {};
    if (!(g.storage() == first.storage())) return {};
    if (g.strides() != first.strides() || g.storage_offset() != next) return {};
    next += g.size(dim) * g.stride(dim);
    width += g.size(dim);
  }
  DimVector sizes(first.sizes());
  sizes[dim] = width;
  if (has_internal_overlap(sizes, first.strides())) return {};
  return first.as_strided(sizes, first.strides(), first.storage_offset());
}

// Joins the gradients of pieces; a piece that nobody used has gradient zero.
Tensor join(const TensorVec& grads, const std::vector<DimVector>& piece_sizes, int64_t dim,
            const TensorOptions& options) {
  if (const Tensor whole = joined_in_memory(grads, dim); whole.defined()) return whole;
  TensorVec all;
  for (size_t i = 0; i < grads.size(); ++i)
    all.push_back(grads[i].defined() ? grads[i] : zeros(piece_sizes[i], options));
  return mica::cat(TensorList(all), dim);
}

}  // namespace

Tensor unbind_backward(const TensorVec& grads, int64_t dim, IntArrayRef sizes, const TensorOptions& options) {
  DimVector piece(sizes);
  piece.erase(wrap_dim(dim, static_cast<int64_t>(sizes.size())));
  TensorVec all;
  for (const Tensor& g : grads) all.push_back(g.defined() ? g : zeros(piece, options));
  return stack(all, dim);
}

Tensor split_backward(const TensorVec& grads, int64_t split_size, int64_t dim, IntArrayRef sizes,
                      const TensorOptions& options) {
  const int64_t d = wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  DimVector pieces;
  for (size_t i = 0; i < grads.size(); ++i)
    pieces.push_back(std::min(split_size, sizes[d] - static_cast<int64_t>(i) * split_size));
  return split_with_sizes_backward(grads, pieces, dim, sizes, options);
}

Tensor split_with_sizes_backward(const TensorVec& grads, IntArrayRef split_sizes, int64_t dim, IntArrayRef sizes,
                                 const TensorOptions& options) {
  const int64_t d = wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  std::vector<DimVector> piece_sizes;
  for (int64_t n : split_sizes) {
    piece_sizes.emplace_back(sizes);
    piece_sizes.back()[d] = n;
  }
  return join(grads, piece_sizes, d, options);
}

Tensor restore_dims(const Tensor& grad, IntArrayRef sizes, OptionalIntArrayRef dim, bool keepdim) {
  const int64_t ndim = static_cast<int64_t>(sizes.size());
  if (keepdim || ndim == 0) return grad;
  if (!dim || dim->empty()) return grad;  // 0-dim: broadcasts as it is
  DimVector dims = wrap_dims(*dim, ndim);
  std::sort(dims.begin(), dims.end());
  Tensor g = grad;
  for (int64_t d : dims) g = g.unsqueeze(d);
  return g;
}

Tensor sum_backward(const Tensor& grad, IntArrayRef sizes, OptionalIntArrayRef dim, bool keepdim) {
  return restore_dims(grad, sizes, dim, keepdim).expand(sizes);
}

}  // namespace mica::formulas
