#include "core/geometry.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica {

namespace shapes {

namespace {

// The sizes with the reduced dimensions kept as ones; no dimensions means all of them.
DimVector kept_sizes(const Tensor& self, OptionalIntArrayRef dim) {
  DimVector sizes(self.sizes());
  if (!dim || dim->empty()) {
    for (int64_t& s : sizes) s = 1;
  } else {
    for (int64_t d : wrap_dims(*dim, self.dim()))
      if (self.dim() > 0) sizes[d] = 1;
  }
  return sizes;
}

DimVector dropped_sizes(const Tensor& self, OptionalIntArrayRef dim) {
  if (!dim || dim->empty()) return {};
  uint64_t chosen = 0;
  for (int64_t d : wrap_dims(*dim, self.dim())) chosen |= uint64_t{1} << d;
  DimVector sizes;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (!(chosen >> d & 1)) sizes.push_back(self.sizes()[d]);
  return sizes;
}

}  // namespace

void sum(Out& out, const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<DType> dtype) {
  const DType given = out.given_dtype().value_or(self.dtype());
  const DType result = dtype ? *dtype : (is_integral(self.dtype()) || self.dtype() == DType::Bool) ? (out.defined_given() ? given : DType::Int64) : self.dtype();
  const DimVector kept = kept_sizes(self, dim);
  const Tensor& target = out.set(keepdim ? kept : dropped_sizes(self, dim), result, self.device());
  if (!out.needs_kernel()) return;
  const Tensor input = self.dtype() == result ? self : self.to(result);
  MICA_KERNEL(self.device(), reduce_sum)(target.view(kept).view_of(), input.view_of(), 0);
}

void sum_all(Out& out, const Tensor& self, std::optional<DType> dtype) { shapes::sum(out, self, std::nullopt, false, dtype); }

}  // namespace shapes

namespace composite {

Tensor sum_to_size(const Tensor& self, IntArrayRef size) {
  if (self.sizes() == size) return self;
  const int64_t lead = self.dim() - static_cast<int64_t>(size.size());
  MICA_CHECK(lead >= 0, "size {", size, "} is not expandable to size {", self.sizes(), "}.");
  DimVector dims;
  for (int64_t d = 0; d < lead; ++d) dims.push_back(d);
  for (int64_t d = lead; d < self.dim(); ++d) {
    const int64_t wanted = size[d - lead];
    MICA_CHECK(wanted == self.sizes()[d] || wanted == 1, "size {", size, "} is not expandable to size {", self.sizes(), "}.");
    if (wanted == 1 && self.sizes()[d] != 1) dims.push_back(d);
  }
  Tensor result = dims.empty() ? self : self.sum(dims.ref(), true);
  return lead > 0 ? result.view(size) : result;
}

}  // namespace composite
}  // namespace mica
