// Writing at given places. Everything is checked before the first element is written.
#include "core/entry.h"
#include "core/expanded.h"
#include "core/kernel_arguments.h"
#include "core/out.h"
#include "core/recorded_rows.h"
#include "core/uninitialized.h"
#include "mica/generated/implementations.h"
#include "mica/warning.h"
#include "shapes/indexing.h"

namespace mica::inplace {

namespace {

// Sums of many 16-bit floats are carried in float and rounded once.
template <class Body>
void summing(const Tensor& self, const Tensor& source, const Body& body) {
  if (!is_narrow(self.dtype())) return body(self, source);
  const UncountedSteps steps(self);
  const Tensor wide = self.to(DType::Float32);
  body(wide, source.to(DType::Float32));
  self.copy_(wide);
}

[[noreturn]] void outside(ErrorKind kind, std::string_view prefix, int64_t index, int64_t dim, int64_t size) {
  fail(kind, mica::cat(prefix, "index ", index, " is out of bounds for dimension ", dim, " with size ", size));
}

int64_t size_at(const Tensor& t, int64_t dim) { return t.dim() ? t.sizes()[dim] : 1; }

}  // namespace

// ---- x[...] = values

void index_put_(const Tensor& self, TensorList indices, const Tensor& given, bool accumulate) {
  auto check_dtype = [&] {
    MICA_CHECK(given.dtype() == self.dtype(), "Index put requires the source and destination dtypes match, got ",
               info(self.dtype()).legacy, " for the destination and ", info(given.dtype()).legacy, " for the source.");
  };
  const bool expanded = warn_if_expanded("index_put_", self);
  for (const Tensor& index : indices)
    if (index.defined()) check_apart(self, index);
  check_apart(self, given);
  if (const Tensor* mask = whole_mask(self, indices); mask && !accumulate && given.dim() <= 1 && !expanded) {
    check_mask_shape(self, *mask, 0);
    const UncountedSteps steps(self);
    const Tensor values = apart_from(given.to(self.device(), self.dtype()), self);
    if (values.numel() == 1) {
      check_dtype();
      self.masked_fill_(*mask, values.view(IntArrayRef()));
    } else {
      const int64_t count = NonzeroCount("index_put_", *mask).total;
      MICA_CHECK(values.numel() == count, "shape mismatch: value tensor of shape ", given.sizes(),
                 " cannot be broadcast to indexing result of shape [", count, "]");
      check_dtype();
      self.masked_scatter_(*mask, values);
    }
    return;
  }
  std::vector<Tensor> places(indices.begin(), indices.end());
  for (Tensor& t : places)
    if (t.defined()) t = apart_from(t, self);
  const AdvancedIndex at(self, places);
  Tensor values = apart_from(given.to(self.device(), self.dtype()), self);
  MICA_CHECK(mica::is_expandable_to(values.sizes(), at.result_sizes), "shape mismatch: value tensor of shape ",
             given.sizes(), " cannot be broadcast to indexing result of shape ", at.result_sizes.ref());
  check_dtype();
  values = values.expand(at.result_sizes);
  if (values.numel() == 0 || self.is_meta()) return;
  if (!accumulate && at.indices.size() == 1 &&
      recording::put_off_copy_to(at.self, at.first, at.indices[0],
                                 at.shape.empty() ? values.unsqueeze(at.first) : values))
    return;
  const auto views = at.views();
  auto put = [&](const Tensor& target, const Tensor& from) {
    MICA_KERNEL(target.device(), index_put)(target.view_of(), at.first, views, from.view_of(), accumulate);
  };
  if (accumulate) return summing(at.self, values, put);
  put(at.self, values);
}

// ---- slices of a dimension

void index_add_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) {
  const int64_t d = check_index_reduction("index_add_", self, dim, index, source);
  check_no_internal_overlap("index_add_", self);
  check_apart(self, index);
  check_apart(self, source);
  const Tensor at = plain_index(at_least_1d(index), self.device());
  if (const auto bad = index_outside(at, 0, size_at(self, d)))
    outside(ErrorKind::Runtime, "", *bad, d, size_at(self, d));
  if (self.numel() == 0 || at.numel() == 0 || self.is_meta()) return;
  summing(at_least_1d(self), at_least_1d(apart_from(source, self)), [&](const Tensor& target, const Tensor& from) {
    MICA_KERNEL(target.device(), index_add)(target.view_of(), d, at.view_of(), from.view_of(), alpha);
  });
}

void index_copy_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  const int64_t d = wrap_dim(dim, self.dim());
  MICA_CHECK(index.dtype() == DType::Int64, "index_copy_(): Expected a long tensor for index, but got ",
             info(index.dtype()).legacy);
  MICA_CHECK(self.dtype() == source.dtype(),
             "index_copy_(): self and source expected to have the same dtype, but got (self) ",
             info(self.dtype()).legacy, " and (source) ", info(source.dtype()).legacy);
  MICA_CHECK_KIND(index.dim() < 2, Index, "index_copy_(): Index should have dimension 1 or 0 (got ", index.dim(), ")");
  MICA_CHECK_KIND(source.dim() == self.dim() || source.dim() == 0 || self.dim() == 0, Index,
                  "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source "
                  "dimensionality (",
                  source.dim(), "), destination dimensionality (", self.dim(), ")");
  MICA_CHECK_KIND(source.dim() == 0 || index.numel() == source.sizes()[d], Index, "index_copy_(): Number of indices (",
                  index.numel(), ") should be equal to source.size(dim) (", size_at(source, d), ")");
  DimVector slice(self.sizes()), source_slice(source.sizes());
  if (!slice.empty()) slice.erase(d);
  if (!source_slice.empty()) source_slice.erase(d);
  MICA_CHECK(slice.ref() == source_slice.ref(),
             "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: ",
             slice.ref(), " at dimension ", d, " and source slice shape: ", source_slice.ref(), " at dimension 0.");
  check_no_internal_overlap("index_copy_", self);
  check_apart(self, index);
  check_apart(self, source);
  const Tensor at = plain_index(at_least_1d(index), self.device());
  if (const auto bad = index_outside(at, 0, size_at(self, d)))
    outside(ErrorKind::Index, "index_copy_(): ", *bad, d, size_at(self, d));
  const Tensor from = at_least_1d(apart_from(source, self));
  if (from.numel() == 0 || self.is_meta()) return;
  if (recording::put_off_copy_to(at_least_1d(self), d, at, from)) return;
  const TensorView* indices[] = {&at.view_of()};
  MICA_KERNEL(self.device(), index_put)(at_least_1d(self).view_of(), d, TensorViewList(indices), from.view_of(), false);
}

void index_fill_(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  const int64_t d = wrap_dim(dim, self.dim());
  MICA_CHECK_KIND(index.dtype() == DType::Int64, Index, "index_fill_(): Expected dtype int64 for index, but got ",
                  index.dtype());
  MICA_CHECK(index.dim() <= 1, "Index has to be a vector/scalar, but got ", index.dim(), " dimensions");
  MICA_CHECK(self.is_complex() || !value.is_complex(),
             "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  check_number_fits(value, self.dtype());
  warn_if_expanded("index_fill_", self);
  check_apart(self, index);
  const Tensor at = plain_index(at_least_1d(index), self.device());
  const int64_t n = size_at(self, d);
  if (const auto bad = index_outside(at, -n, n)) outside(ErrorKind::Index, "", *bad, d, n);
  const Tensor target = at_least_1d(self);
  DimVector sizes(target.sizes());
  sizes[d] = at.numel();
  if (count_elements(sizes) == 0 || self.is_meta()) return;
  const Tensor values = scalar_tensor(value, self.options()).expand(sizes);
  const TensorView* indices[] = {&at.view_of()};
  MICA_KERNEL(self.device(), index_put)(target.view_of(), d, TensorViewList(indices), values.view_of(), false);
}

void index_fill_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  MICA_CHECK(value.dim() == 0, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
             value.dim(), " dimension(s).");
  inplace::index_fill_(self, dim, index, value.is_meta() ? Scalar(0) : value.item());
}

// ---- elements at places of the flattened tensor, or of a mask

void put_(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  MICA_CHECK(index.dtype() == DType::Int64, "put_(): Expected a long tensor for index, but got ",
             info(index.dtype()).legacy);
  MICA_CHECK(self.dtype() == source.dtype(),
             "put_(): self and source expected to have the same dtype, but got self.dtype = ",
             info(self.dtype()).legacy, " and source.dtype = ", info(source.dtype()).legacy);
  MICA_CHECK_KIND(index.numel() == source.numel(), Index,
                  "put_(): Expected source and index to have the same number of elements, but got source.numel() = ",
                  source.numel(), ", index.numel() = ", index.numel());
  if (!accumulate || !self.is_cpu()) alert_not_deterministic("put_");
  check_no_internal_overlap("put_", self);
  check_apart(self, index);
  check_apart(self, source);
  const Tensor at = plain_index(index, self.device()).view({-1});
  if (const auto bad = index_outside(at, -self.numel(), self.numel()))
    fail(ErrorKind::Index,
         mica::cat("out of range: tried to access index ", *bad, " on a tensor of ", self.numel(), " elements."));
  if (index.numel() == 0 || self.is_meta()) return;
  const Tensor values = apart_from(source, self).reshape({-1});
  const UncountedSteps steps(self);
  const TensorView* indices[] = {&at.view_of()};
  const Tensor dense = self.contiguous();
  auto put = [&](const Tensor& target, const Tensor& from) {
    MICA_KERNEL(target.device(), index_put)(target.view_of(), 0, TensorViewList(indices), from.view_of(), accumulate);
  };
  if (accumulate) {
    summing(dense.view({-1}), values, put);
  } else {
    put(dense.view({-1}), values);
  }
  if (!dense.is_same(self)) self.copy_(dense);
}

void masked_scatter_(const Tensor& self, const Tensor& mask, const Tensor& source) {
  MICA_CHECK(self.dtype() == source.dtype(), "masked_scatter: expected self and source to have same dtypes but got ",
             info(self.dtype()).legacy, " and ", info(source.dtype()).legacy);
  MICA_CHECK(mask.dtype() == DType::Bool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
             info(mask.dtype()).legacy);
  check_no_internal_overlap("masked_scatter_", self);
  const Tensor where = apart_from(mask, self).expand(self.sizes()).contiguous();
  if (self.is_meta()) return;
  const NonzeroCount count("masked_scatter_", where);
  MICA_CHECK(count.total <= source.numel(), "Number of elements of source < number of ones in mask: ", source.numel(),
             " < ", count.total);
  if (count.total == 0) return;
  const UncountedSteps steps(self);
  const Tensor from = apart_from(source, self).contiguous(), dense = self.contiguous();
  MICA_KERNEL(self.device(), masked_scatter)(dense.view_of(), where.view_of(), from.view_of(), count.offsets.view_of());
  if (!dense.is_same(self)) self.copy_(dense);
}

void fill_diagonal_(const Tensor& self, const Scalar& fill_value, bool wrap) {
  MICA_CHECK(self.dim() >= 2, "dimensions must larger than 1");
  check_number_fits(fill_value, self.dtype());
  const UncountedSteps steps(self);
  const int64_t rows = self.sizes()[0], columns = self.sizes()[1];
  if (self.dim() > 2) {
    int64_t step = 0;
    for (int64_t d = 0; d < self.dim(); ++d) {
      MICA_CHECK(self.sizes()[d] == rows, "all dimensions of input must be of equal length, but got ", self.sizes());
      step += self.strides()[d];
    }
    self.as_strided(IntArrayRef(rows), IntArrayRef(step), self.storage_offset()).fill_(fill_value);
    return;
  }
  for (int64_t first = 0; first < rows; first += columns + 1) {
    slice(self, 0, first, std::min(first + columns, rows)).diagonal().fill_(fill_value);
    if (!wrap) return;
  }
}

void embedding_renorm_(const Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  MICA_CHECK(self.dim() == 2, "embedding_renorm_: expected a 2-D table, but got ", self.sizes());
  MICA_CHECK(self.is_floating_point(), "norm(): input dtype should be either floating point or complex. Got ",
             info(self.dtype()).legacy, " instead.");
  MICA_CHECK(
      indices.dtype() == DType::Int64 || indices.dtype() == DType::Int32,
      "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.",
      info(indices.dtype()).legacy, "Tensor instead (while checking arguments for embedding_renorm_)");
  check_no_internal_overlap("embedding_renorm_", self);
  const Tensor rows = plain_index(indices, self.device());
  if (const auto bad = index_outside(rows, 0, self.sizes()[0]))
    fail(ErrorKind::Index, mica::cat("index out of range in self: embedding_renorm_() got ", *bad, " for a table of ",
                                     self.sizes()[0], " rows"));
  if (rows.numel() == 0 || self.numel() == 0 || self.is_meta()) return;
  MICA_KERNEL(self.device(), embedding_renorm)(self.view_of(), rows.view_of(), max_norm, norm_type);
}

}  // namespace mica::inplace
