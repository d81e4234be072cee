// Tables of rows, and copies in which one view is overwritten.
#include "core/allocate.h"
#include "core/out.h"
#include "mica/generated/implementations.h"
#include "shapes/indexing.h"

namespace mica::shapes {

namespace {

void check_embedding_index(const char* op, const Tensor& indices) {
  MICA_CHECK(
      indices.dtype() == DType::Int64 || indices.dtype() == DType::Int32,
      "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.",
      info(indices.dtype()).legacy, "Tensor instead (while checking arguments for ", op, ")");
}

// The indices as one dimension, after a check that each names one of `rows` rows.
Tensor row_indices(const char* op, const Tensor& indices, int64_t rows, Device device) {
  check_embedding_index(op, indices);
  Tensor flat = plain_index(indices, device).view({-1});
  if (const auto bad = index_outside(flat, 0, rows))
    fail(ErrorKind::Index,
         mica::cat("index out of range in self: ", op, "() got ", *bad, " for a table of ", rows, " rows"));
  return flat;
}

// Makes the result: a copy in which the view is overwritten. Sizes must agree, dtypes need not.
void overwrite(Out& out, const Tensor& copy, const Tensor& view, const Tensor& src) {
  MICA_CHECK(view.sizes() == src.sizes(),
             "expected src to have a size equal to the slice of self. src size = ", src.sizes(),
             ", slice size = ", view.sizes());
  view.copy_(src);
  out.take(copy);
}

}  // namespace

void embedding(Out& out, const Tensor& weight, const Tensor& indices, int64_t, bool, bool) {
  MICA_CHECK(weight.dim() == 2, "'weight' must be 2-D, but got ", weight.sizes());
  const Tensor rows = row_indices("embedding", indices, weight.sizes()[0], weight.device());
  DimVector sizes(indices.sizes());
  sizes.push_back(weight.sizes()[1]);
  const Tensor& result = out.set(sizes, weight.dtype(), weight.device());
  if (!out.needs_kernel()) return;
  MICA_KERNEL(weight.device(), index_select)
  (result.view({rows.numel(), weight.sizes()[1]}).view_of(), weight.view_of(), 0, rows.view_of());
}

void embedding_dense_backward(Out& out, const Tensor& grad_output, const Tensor& indices, int64_t num_weights,
                              int64_t padding_idx, bool scale_grad_by_freq) {
  MICA_CHECK(grad_output.dim() == indices.dim() + 1, "embedding_backward: expected one dimension more than ",
             indices.sizes(), " for the gradient, but got ", grad_output.sizes());
  const Tensor rows = row_indices("embedding_backward", indices, num_weights, grad_output.device());
  const int64_t width = grad_output.sizes().back();
  const Tensor& result = out.set({num_weights, width}, grad_output.dtype(), grad_output.device());
  if (!out.needs_kernel()) return;
  result.zero_();
  if (rows.numel() == 0) return;
  MICA_KERNEL(grad_output.device(), embedding_dense_backward)
  (result.view_of(), grad_output.reshape({rows.numel(), width}).view_of(), rows.view_of(), padding_idx,
   scale_grad_by_freq);
}

void select_scatter(Out& out, const Tensor& self, const Tensor& src, int64_t dim, int64_t index) {
  const Tensor copy = self.clone();
  overwrite(out, copy, copy.select(dim, index), src);
}

void slice_scatter(Out& out, const Tensor& self, const Tensor& src, int64_t dim, std::optional<int64_t> start,
                   std::optional<int64_t> end, int64_t step) {
  const Tensor copy = self.clone();
  overwrite(out, copy, slice(copy, dim, start, end, step), src);
}

void diagonal_scatter(Out& out, const Tensor& self, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2) {
  const Tensor copy = self.clone();
  overwrite(out, copy, copy.diagonal(offset, dim1, dim2), src);
}

// The whole storage is copied, so that sizes, strides and offset mean the same in the copy.
void as_strided_scatter(Out& out, const Tensor& self, const Tensor& src, IntArrayRef size, IntArrayRef stride,
                        std::optional<int64_t> storage_offset) {
  const int64_t offset = storage_offset.value_or(self.storage_offset());
  if (self.is_meta()) {
    out.set(self.sizes(), self.dtype(), self.device(), self.strides());
    return;
  }
  const int64_t capacity = static_cast<int64_t>(self.storage()->nbytes()) / self.element_size();
  const Tensor storage = self.as_strided(IntArrayRef(capacity), IntArrayRef(int64_t{1}), 0).clone();
  const Tensor copy =
      make_view(storage, self.sizes(), self.strides(), self.storage_offset());  // not a view for autograd
  overwrite(out, copy, copy.as_strided(size, stride, offset), src);
}

}  // namespace mica::shapes
