#include "core/geometry.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::shapes {

namespace {

// An index as kernels want it: int64, contiguous, one-dimensional, every entry checked against the dimension it points into.
Tensor checked_index(const char* op, const Tensor& index, int64_t size) {
  MICA_CHECK_KIND(index.dim() <= 1, Index, op, "(): Index is supposed to be a vector, but got ", index.dim(), " dimensions");
  MICA_CHECK(index.dtype() == DType::Int32 || index.dtype() == DType::Int64, op, "(): Expected dtype int32/int64 for index but got: ", index.dtype());
  const Tensor flat = index.to(DType::Int64).contiguous().reshape({-1});
  if (!flat.is_cpu()) return flat;
  const auto* at = flat.data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i)
    MICA_CHECK_KIND(at[i] >= 0 && at[i] < size, Index, op, "(): index ", at[i], " at position ", i, " is out of range: the dimension has size ", size);
  return flat;
}

}  // namespace

void index_select(Out& out, const Tensor& self, int64_t dim, const Tensor& index) {
  const int64_t d = wrap_dim(dim, self.dim());
  const Tensor at = checked_index("index_select", index, self.dim() ? self.sizes()[d] : 1);
  DimVector sizes(self.sizes());
  if (self.dim()) sizes[d] = at.numel();
  MICA_CHECK(self.dim() || at.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ", at.numel(), " value(s)");
  const Tensor& result = out.set(sizes, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  if (self.dim() == 0) {
    result.copy_(self);
    return;
  }
  MICA_KERNEL(self.device(), index_select)(result.view_of(), self.view_of(), d, at.view_of());
}

void index_add(Out& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) {
  const int64_t d = wrap_dim(dim, self.dim());
  const Tensor at = checked_index("index_add", index, self.dim() ? self.sizes()[d] : 1);
  MICA_CHECK(source.dtype() == self.dtype(), "index_add_(): self (", self.dtype(), ") and source (", source.dtype(), ") must have the same scalar type");
  const int64_t count = source.dim() ? source.size(d) : 1;
  MICA_CHECK_KIND(count == at.numel(), Runtime, "index_add_(): Number of indices (", at.numel(), ") should be equal to source.size(dim): (", count, "), for dim: ", d);
  for (int64_t k = 0; k < self.dim() && source.dim(); ++k)
    MICA_CHECK(k == d || source.size(k) == self.size(k), "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = ",
               self.sizes(), " source.shape = ", source.sizes());
  const Tensor& result = out.set(self.sizes(), self.dtype(), self.device());
  if (result.is_meta() || result.numel() == 0) return;
  result.copy_(self);
  if (at.numel() == 0) return;
  const Tensor target = result.dim() ? result : result.view({1});
  const Tensor from = source.dim() ? source : source.view({1});
  MICA_KERNEL(self.device(), index_add)(target.view_of(), d, at.view_of(), from.view_of(), alpha);
}

}  // namespace mica::shapes
