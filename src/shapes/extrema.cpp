// Shape rules of the reductions that pick elements: the largest, the smallest, and where they stand.
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "shapes/recorded_reduction.h"
#include "shapes/reduced_dims.h"

namespace mica::shapes {

namespace {

const Tensor& set(Out& out, const Tensor& self, uint64_t dims, bool keepdim, DType dtype) {
  const recording::Promises promised(recording::rows_may_wait(self));
  if (dims == kAllDims && !keepdim) return out.set({}, dtype, self.device());
  return out.set(reduced_sizes(self, dims, keepdim), dtype, self.device());
}

void check_same_dtype(const Out& out, const Tensor& self) {
  MICA_CHECK(!out.defined_given() || *out.given_dtype() == self.dtype(),
             "Expected the dtype for input and out to match, but got ", info(self.dtype()).legacy,
             " for input's dtype and ", info(*out.given_dtype()).legacy, " for out's dtype.");
}

void run_amax(const char* op, Out& out, const Tensor& self, uint64_t dims, bool keepdim) {
  check_not_empty(op, self, dims);
  check_same_dtype(out, self);
  const Tensor& target = set(out, self, dims, keepdim, self.dtype());
  if (out.needs_kernel()) reduce("reduce_amax", MICA_KERNEL(self.device(), reduce_amax), target, self, dims);
}

void run_amin(const char* op, Out& out, const Tensor& self, uint64_t dims, bool keepdim) {
  check_not_empty(op, self, dims);
  check_same_dtype(out, self);
  const Tensor& target = set(out, self, dims, keepdim, self.dtype());
  if (out.needs_kernel()) reduce("reduce_amin", MICA_KERNEL(self.device(), reduce_amin), target, self, dims);
}

struct Selection {
  const Tensor& values;
  const Tensor& indices;
  uint64_t dims;
};

Selection select(const char* op, Out& values, Out& indices, const Tensor& self, int64_t dim, bool keepdim) {
  const uint64_t dims = reduced_dim(dim, self.dim());
  check_not_empty(op, self, dims);
  MICA_CHECK(!self.is_complex(), op, "(): does not support complex input");
  check_out_dtype(values, self.dtype());
  check_out_dtype(indices, DType::Int64);
  return {set(values, self, dims, keepdim, self.dtype()), set(indices, self, dims, keepdim, DType::Int64), dims};
}

// The dimension to search. Where all elements are searched, they are searched in their order: as one dimension, or in a
// copy where strides allow no such view.
struct Search {
  Tensor input;
  uint64_t dims;
};

Search search(const char* op, Out& out, const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  MICA_CHECK(!self.is_complex(), op, "(): does not support complex input");
  MICA_CHECK(self.dtype() != DType::Bool, op, "(): does not support bool input");
  MICA_CHECK_KIND(dim || self.numel() > 0, Index, op,
                  "(): Expected reduction dim to be specified for input.numel() == 0.");
  const uint64_t dims = dim ? reduced_dim(*dim, self.dim()) : kAllDims;
  if (dim) check_not_empty(op, self, dims);
  check_out_dtype(out, DType::Int64);
  set(out, self, dims, keepdim, DType::Int64);
  if (dim || !out.needs_kernel()) return {self, dims};
  if (!keepdim && !self.is_contiguous() && view_strides(self.sizes(), self.strides(), {self.numel()}))
    return {self.view({-1}), 1};
  return {self.contiguous(), dims};
}

}  // namespace

void amax(Out& out, const Tensor& self, IntArrayRef dim, bool keepdim) {
  run_amax("amax", out, self, reduced_dims(dim, self.dim()), keepdim);
}
void amin(Out& out, const Tensor& self, IntArrayRef dim, bool keepdim) {
  run_amin("amin", out, self, reduced_dims(dim, self.dim()), keepdim);
}
void max_all(Out& out, const Tensor& self) { run_amax("max", out, self, kAllDims, false); }
void min_all(Out& out, const Tensor& self) { run_amin("min", out, self, kAllDims, false); }

void aminmax(Out& min, Out& max, const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  MICA_CHECK(dim || self.numel() > 0,
             "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.");
  if (self.is_complex()) unsupported_dtype("aminmax_cpu", self.dtype());
  const uint64_t dims = dim ? reduced_dim(*dim, self.dim()) : kAllDims;
  check_not_empty("aminmax", self, dims);
  check_same_dtype(min, self);
  check_same_dtype(max, self);
  const Tensor &low = set(min, self, dims, keepdim, self.dtype()), &high = set(max, self, dims, keepdim, self.dtype());
  if (min.needs_kernel())
    MICA_KERNEL(self.device(), reduce_aminmax)(low.view_of(), high.view_of(), self.view_of(), dims);
}

void max(Out& values, Out& indices, const Tensor& self, int64_t dim, bool keepdim) {
  const Selection s = select("max", values, indices, self, dim, keepdim);
  if (!values.needs_kernel()) return;
  MICA_KERNEL(self.device(), reduce_max_with_index)(s.values.view_of(), s.indices.view_of(), self.view_of(), s.dims);
}

void min(Out& values, Out& indices, const Tensor& self, int64_t dim, bool keepdim) {
  const Selection s = select("min", values, indices, self, dim, keepdim);
  if (!values.needs_kernel()) return;
  MICA_KERNEL(self.device(), reduce_min_with_index)(s.values.view_of(), s.indices.view_of(), self.view_of(), s.dims);
}

void argmax(Out& out, const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  const Search s = search("argmax", out, self, dim, keepdim);
  if (out.needs_kernel()) MICA_KERNEL(self.device(), reduce_argmax)(out.tensor().view_of(), s.input.view_of(), s.dims);
}

void argmin(Out& out, const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  const Search s = search("argmin", out, self, dim, keepdim);
  if (out.needs_kernel()) MICA_KERNEL(self.device(), reduce_argmin)(out.tensor().view_of(), s.input.view_of(), s.dims);
}

}  // namespace mica::shapes
