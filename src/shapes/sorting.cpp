#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::shapes {

namespace {

void check_sortable(const char* op, const Tensor& self) {
  MICA_CHECK(!self.is_complex(), " Sort does not support complex dtypes on CPU (", op, ")");
}

const TensorView kUnwanted{};

}  // namespace

void sort(Out& values, Out& indices, const Tensor& self, int64_t dim, bool descending) {
  check_sortable("sort", self);
  const int64_t d = wrap_dim(dim, self.dim());
  const Tensor& v = values.set(self.sizes(), self.dtype(), self.device());
  const Tensor& i = indices.set(self.sizes(), DType::Int64, self.device());
  if (!values.needs_kernel()) return;
  MICA_KERNEL(self.device(), sort)(v.view_of(), i.view_of(), ordered_by_bytes(self).view_of(), d, descending);
}
void sort_stable(Out& values, Out& indices, const Tensor& self, std::optional<bool>, int64_t dim, bool descending) {
  shapes::sort(values, indices, self, dim, descending);
}

void argsort(Out& out, const Tensor& self, int64_t dim, bool descending) {
  check_sortable("argsort", self);
  const int64_t d = wrap_dim(dim, self.dim());
  const Tensor& i = out.set(self.sizes(), DType::Int64, self.device());
  if (!out.needs_kernel()) return;
  MICA_KERNEL(self.device(), sort)(kUnwanted, i.view_of(), ordered_by_bytes(self).view_of(), d, descending);
}
void argsort_stable(Out& out, const Tensor& self, bool, int64_t dim, bool descending) {
  shapes::argsort(out, self, dim, descending);
}

void topk(Out& values, Out& indices, const Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted) {
  MICA_CHECK(!self.is_complex(), "topk(): complex tensors cannot be ordered");
  const int64_t d = wrap_dim(dim, self.dim());
  MICA_CHECK(k >= 0 && k <= (self.dim() ? self.size(d) : 1), "selected index k out of range: k = ", k,
             ", and dimension ", d, " has size ", self.dim() ? self.size(d) : 1);
  MICA_CHECK(self.dtype() != DType::Bool, "topk does not support bool dtypes on ",
             self.is_cpu() ? "CPU" : device_type_name(self.device().type()), ". Convert first: x.byte().topk(...).");
  if (self.dim() == 0) k = 1;  // torch gives the number itself, even for k = 0
  DimVector sizes(self.sizes());
  if (self.dim()) sizes[d] = k;
  const Tensor& v = values.set(sizes, self.dtype(), self.device());
  const Tensor& i = indices.set(sizes, DType::Int64, self.device());
  if (!values.needs_kernel() || k == 0) return;
  MICA_KERNEL(self.device(), topk)(v.view_of(), i.view_of(), ordered_by_bytes(self).view_of(), k, d, largest, sorted);
}

namespace {

// One value and one index per row: outputs without the dimension, or with it as size one.
template <class Kernel>
void select_along(const char* op, Out& values, Out& indices, const Tensor& self, int64_t dim, bool keepdim,
                  const Kernel& kernel) {
  MICA_CHECK_KIND(!self.is_complex(), NotImplemented, "\"", op, "_cpu\" not implemented for '",
                  info(self.dtype()).legacy, "'");
  const int64_t d = wrap_dim(dim, self.dim());
  MICA_CHECK_KIND(self.dim() == 0 || self.size(d) > 0, Index, op, "(): Expected reduction dim ", d,
                  " to have non-zero size.");
  DimVector kept(self.sizes());
  if (self.dim()) kept[d] = 1;
  DimVector sizes(kept);
  if (self.dim() && !keepdim) sizes.erase(d);
  const Tensor& v = values.set(sizes, self.dtype(), self.device());
  const Tensor& i = indices.set(sizes, DType::Int64, self.device());
  if (!values.needs_kernel()) return;
  const Tensor v_kept = keepdim || self.dim() == 0 ? v : v.unsqueeze(d),
               i_kept = keepdim || self.dim() == 0 ? i : i.unsqueeze(d);
  kernel(v_kept.view_of(), i_kept.view_of(), d);
}

}  // namespace

void kthvalue(Out& values, Out& indices, const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  const int64_t n = self.dim() ? self.size(dim) : 1;
  MICA_CHECK_KIND(n > 0, Index, "kthvalue(): Expected reduction dim ", wrap_dim(dim, self.dim()),
                  " to have non-zero size.");
  MICA_CHECK(k >= 1 && k <= n, "kthvalue(): selected number k out of range for dimension ", wrap_dim(dim, self.dim()));
  select_along("kthvalue", values, indices, self, dim, keepdim,
               [&](const TensorView& v, const TensorView& i, int64_t d) {
                 MICA_KERNEL(self.device(), kthvalue)(v, i, ordered_by_bytes(self).view_of(), k, d);
               });
}
void median(Out& values, Out& indices, const Tensor& self, int64_t dim, bool keepdim) {
  select_along("median", values, indices, self, dim, keepdim, [&](const TensorView& v, const TensorView& i, int64_t d) {
    MICA_KERNEL(self.device(), median)(v, i, ordered_by_bytes(self).view_of(), d, false);
  });
}
void nanmedian(Out& values, Out& indices, const Tensor& self, int64_t dim, bool keepdim) {
  select_along("nanmedian", values, indices, self, dim, keepdim,
               [&](const TensorView& v, const TensorView& i, int64_t d) {
                 MICA_KERNEL(self.device(), median)(v, i, ordered_by_bytes(self).view_of(), d, true);
               });
}
void mode(Out& values, Out& indices, const Tensor& self, int64_t dim, bool keepdim) {
  select_along("mode", values, indices, self, dim, keepdim, [&](const TensorView& v, const TensorView& i, int64_t d) {
    MICA_KERNEL(self.device(), mode)(v, i, ordered_by_bytes(self).view_of(), d);
  });
}

void searchsorted(Out& out, const Tensor& sorted_sequence, const Tensor& self, bool out_int32, bool right,
                  std::optional<std::string_view> side, const Tensor& sorter) {
  MICA_CHECK(!side || *side == "left" || *side == "right",
             "torch.searchsorted(): side can only be 'left' or 'right' but got ", side.value_or(""));
  MICA_CHECK(!side || !right || *side == "right",
             "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True");
  const bool from_right = right || (side && *side == "right");
  const int64_t n = sorted_sequence.dim();
  MICA_CHECK(n > 0,
             "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but got "
             "boundaries tensor dim(0)");
  if (n != 1) {
    MICA_CHECK(self.dim() == n && self.sizes().slice(0, n - 1) == sorted_sequence.sizes().slice(0, n - 1),
               "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
               "boundaries tensor and input value tensor must match, "
               "but we got boundaries tensor ",
               sorted_sequence.sizes(), " and input value tensor ", self.sizes());
  }
  if (sorter.defined()) {
    MICA_CHECK(sorter.sizes() == sorted_sequence.sizes(),
               "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor ",
               sorted_sequence.sizes(), "and got sorter tensor ", sorter.sizes());
    MICA_CHECK(sorter.dtype() == DType::Int64,
               "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype ",
               info(sorter.dtype()).legacy);
    if (has_work(sorter))
      MICA_CHECK(sorter.min().item<int64_t>() >= 0 && sorter.max().item<int64_t>() < sorted_sequence.size(-1),
                 "torch.searchsorted(): sorter index out of range");
  }
  MICA_CHECK(sorted_sequence.device() == self.device(),
             "torch.searchsorted(): boundaries and input value tensors should have same device type");
  const Tensor& positions = out.set(self.sizes(), out_int32 ? DType::Int32 : DType::Int64, self.device());
  if (!out.needs_kernel()) return;
  const DType common = promote_types(sorted_sequence.dtype(), self.dtype());
  const Tensor dense = positions.is_contiguous() ? positions : mica::empty(positions.sizes(), positions.options());
  const Tensor edges = ordered_by_bytes(sorted_sequence.to(common)).contiguous(),
               queries = ordered_by_bytes(self.to(common)).contiguous();
  const Tensor order = sorter.defined() ? sorter.contiguous() : Tensor();
  MICA_KERNEL(self.device(), searchsorted)
  (dense.view_of(), edges.view_of(), queries.view_of(), order.defined() ? order.view_of() : kUnwanted, from_right);
  if (!dense.is_same(positions)) positions.copy_(dense);
}

void searchsorted(Out& out, const Tensor& sorted_sequence, const Scalar& self, bool out_int32, bool right,
                  std::optional<std::string_view> side, const Tensor& sorter) {
  MICA_CHECK(sorted_sequence.dim() == 1,
             "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but got "
             "boundaries tensor dim(",
             sorted_sequence.dim(), ")");
  TensorOptions o = sorted_sequence.options();
  if (self.is_floating() && !is_floating(o.dtype())) o = o.dtype(default_dtype());
  shapes::searchsorted(out, sorted_sequence, mica::full({}, self, o), out_int32, right, side, sorter);
}

void bucketize(Out& out, const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  MICA_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  shapes::searchsorted(out, boundaries, self, out_int32, right, std::nullopt, Tensor());
}
void bucketize(Out& out, const Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  MICA_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  shapes::searchsorted(out, boundaries, self, out_int32, right, std::nullopt, Tensor());
}

}  // namespace mica::shapes
