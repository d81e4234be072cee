#include "shapes/indexing.h"

#include <algorithm>

#include "core/out.h"
#include "mica/generated/implementations.h"
#include "mica/warning.h"

namespace mica {

Tensor plain_index(const Tensor& index, Device device) { return index.to(device, DType::Int64).contiguous(); }

std::optional<int64_t> index_outside(const Tensor& index, int64_t low, int64_t high) {
  if (index.is_meta() || index.numel() == 0 || capabilities_of(index.device()).reports_indices) return std::nullopt;
  int64_t position = -1;
  MICA_KERNEL(index.device(), first_outside)(index.view_of(), low, high, &position);
  return position < 0 ? std::nullopt : std::optional(index.view({-1}).select(0, position).item<int64_t>());
}

Tensor apart_from(const Tensor& read, const Tensor& written) {
  return may_share_memory(read, written) ? read.clone() : read;
}

void check_apart(const Tensor& written, const Tensor& read) {
  const auto dense = [](const Tensor& t) { return t.numel() > 0 && t.is_non_overlapping_and_dense(); };
  MICA_CHECK(
      !dense(written) || !dense(read) || !may_share_memory(written, read),
      "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
      "location. Please clone() the tensor before performing the operation.");
}

void check_number_fits(const Scalar& value, DType dtype) {
  switch (dtype) {
#define MICA_CASE(T, Name) \
  case DType::Name:        \
    (void)value.to<T>();   \
    break;
    MICA_FORALL_DTYPES(MICA_CASE)
#undef MICA_CASE
    default:
      break;
  }
}

Scalar as_one_element(const Scalar& value, DType dtype) {
  if (dtype == DType::Float16) return Scalar(static_cast<float>(Half(static_cast<float>(value.to<double>()))));
  if (dtype == DType::BFloat16) return Scalar(static_cast<float>(BFloat16(static_cast<float>(value.to<double>()))));
  check_number_fits(value, dtype);
  return value;
}

bool is_expandable_to(IntArrayRef sizes, IntArrayRef wanted) {
  if (sizes.size() > wanted.size()) return false;
  const size_t added = wanted.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 && sizes[d] != wanted[d + added]) return false;
  return true;
}

int64_t check_index_reduction(const char* op, const Tensor& self, int64_t dim, const Tensor& index,
                              const Tensor& source) {
  const int64_t d = wrap_dim(dim, self.dim());
  MICA_CHECK_KIND(index.dim() <= 1, Index, op, "(): Index is supposed to be a vector, but got dim: ", index.dim(),
                  " with type: ", info(index.dtype()).legacy, " and size: ", index.sizes());
  MICA_CHECK(index.dtype() == DType::Int32 || index.dtype() == DType::Int64, op,
             "(): Expected dtype int32/int64 for index but got: ", info(index.dtype()).legacy);
  MICA_CHECK(self.dtype() == source.dtype(), op, "(): self (", info(self.dtype()).legacy, ") and source (",
             info(source.dtype()).legacy, ") must have the same scalar type");
  MICA_CHECK(source.dim() == 0 || d < source.dim(), op, "(): Indexing dim ", d,
             " is out of bounds of the source tensor with dim ", source.dim());
  const int64_t count = source.dim() ? source.sizes()[d] : 1;
  MICA_CHECK(index.numel() == count, op, "(): Number of indices (", index.numel(),
             ") should be equal to source.size(dim): (", count, "), for dim: ", d);
  DimVector slice(self.sizes()), source_slice(source.sizes());
  if (!slice.empty()) slice.erase(d);
  if (!source_slice.empty()) source_slice.erase(d);
  MICA_CHECK(slice.ref() == source_slice.ref(),
             "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = ",
             self.sizes(), " source.shape = ", source.sizes());
  return d;
}

// ---- masks

void warn_byte_mask() {
  warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
}

void check_mask_shape(const Tensor& self, const Tensor& mask, int64_t first) {
  for (int64_t d = 0; d < mask.dim(); ++d)
    MICA_CHECK_KIND(first + d < self.dim() && mask.sizes()[d] == self.sizes()[first + d], Index,
                    "The shape of the mask ", mask.sizes(), " at index ", d,
                    " does not match the shape of the indexed tensor ", self.sizes(), " at index ", first + d);
}

const Tensor* whole_mask(const Tensor& self, TensorList indices) {
  if (indices.size() != 1 || !indices[0].defined() || indices[0].dtype() != DType::Bool) return nullptr;
  return indices[0].dim() == self.dim() && self.dim() > 0 && indices[0].device() == self.device() ? &indices[0]
                                                                                                  : nullptr;
}

NonzeroCount::NonzeroCount(const char* op, const Tensor& self) {
  MICA_CHECK_KIND(!self.is_meta(), NotImplemented, op,
                  "(): the shape of the result depends on the data, which a meta tensor does not have");
  // A device takes many small chunks, and larger ones where there are enough; the CPU takes a few for each thread.
  const int64_t small = self.numel() < (int64_t{1} << 24) ? 4096 : 16384, chunk = self.is_cpu() ? 32768 : small;
  const int64_t most = self.is_cpu() ? 4 * get_num_threads() : int64_t{1} << 20;
  const int64_t chunks = std::clamp<int64_t>(self.numel() / chunk, 1, most);
  offsets = empty({chunks + 1}, TensorOptions(DType::Int64).device(self.device()));
  MICA_KERNEL(self.device(), nonzero_offsets)(offsets.view_of(), self.view_of());
  total = offsets.select(0, -1).item().to_int();
}

// ---- arranging indices

namespace {

bool is_mask(const Tensor& t) { return t.dtype() == DType::Bool || t.dtype() == DType::UInt8; }

// One index per dimension: masks become the indices of their nonzero elements.
std::vector<Tensor> expand_masks(const Tensor& self, TensorList indices) {
  std::vector<Tensor> result;
  for (const Tensor& index : indices) {
    if (!index.defined()) {
      result.emplace_back();
      continue;
    }
    const DType t = index.dtype();
    MICA_CHECK_KIND(t == DType::Int64 || t == DType::Int32 || is_mask(index), Index,
                    "tensors used as indices must be long, int, byte or bool tensors (got ", t, ")");
    if (!is_mask(index)) {
      result.push_back(index);
      continue;
    }
    if (t == DType::UInt8) warn_byte_mask();
    check_mask_shape(self, index, static_cast<int64_t>(result.size()));
    for (Tensor& column : nonzero(index).unbind(1)) result.push_back(std::move(column));
  }
  return result;
}

DimVector common_shape(const std::vector<Tensor>& indices) {
  DimVector shape;
  try {
    for (const Tensor& t : indices)
      if (t.defined()) shape = broadcast_sizes(shape, t.sizes());
  } catch (const Error&) {
    std::string shapes;
    for (const Tensor& t : indices) {
      if (!t.defined()) continue;
      if (!shapes.empty()) shapes += ", ";
      append_to(shapes, t.sizes());
    }
    fail(ErrorKind::Index,
         mica::cat("shape mismatch: indexing tensors could not be broadcast together with shapes ", shapes));
  }
  return shape;
}

}  // namespace

AdvancedIndex::AdvancedIndex(const Tensor& source, TensorList given) : self(source) {
  std::vector<Tensor> each = expand_masks(self, given);
  const auto ndim = static_cast<size_t>(self.dim());
  MICA_CHECK_KIND(each.size() <= ndim, Index, "too many indices for tensor of dimension ", ndim, " (got ", each.size(),
                  ")");
  shape = common_shape(each);
  DimVector indexed, rest;
  for (size_t d = 0; d < ndim; ++d)
    (d < each.size() && each[d].defined() ? indexed : rest).push_back(static_cast<int64_t>(d));
  MICA_CHECK_KIND(!indexed.empty(), Index, "at least one index must be provided, and be a tensor");
  first = indexed[0];
  const bool together = indexed.back() - first + 1 == static_cast<int64_t>(indexed.size());
  for (int64_t d : indexed) {
    indices.push_back(plain_index(each[d].expand(shape), self.device()));
    // The dimensions have moved, so the kernel would no longer name the right one in its error.
    if (together) continue;
    const int64_t n = self.sizes()[d];
    if (const auto bad = index_outside(indices.back(), -n, n))
      fail(ErrorKind::Index, mica::cat("index ", *bad, " is out of bounds for dimension ", d, " with size ", n));
  }
  if (!together) {
    DimVector order = indexed;
    for (int64_t d : rest) order.push_back(d);
    self = self.permute(order);
    first = 0;
  }
  for (int64_t d = 0; d < first; ++d) result_sizes.push_back(self.sizes()[d]);
  for (int64_t s : shape) result_sizes.push_back(s);
  for (int64_t d = first + static_cast<int64_t>(indexed.size()); d < self.dim(); ++d)
    result_sizes.push_back(self.sizes()[d]);
}

std::vector<const TensorView*> AdvancedIndex::views() const {
  std::vector<const TensorView*> result;
  for (const Tensor& t : indices) result.push_back(&t.view_of());
  return result;
}

namespace {

// For these operations torch does not convert the result into the given out=.
void check_out_dtype(const char* op, const Out& out, DType dtype) {
  const auto given = out.given_dtype();
  MICA_CHECK(!given || *given == dtype, op, "(): Expected out tensor to have dtype ", dtype, ", but got ",
             given.value_or(dtype), " instead");
}

}  // namespace

namespace shapes {

void index(Out& out, const Tensor& self, TensorList indices) {
  if (const Tensor* mask = whole_mask(self, indices)) {
    check_mask_shape(self, *mask, 0);
    return shapes::masked_select(out, self, *mask);
  }
  const AdvancedIndex at(self, indices);
  const Tensor& result = out.set(at.result_sizes, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  // An index into an empty dimension has no place to read from. These are torch's words for it.
  for (size_t k = 0; k < at.indices.size(); ++k)
    MICA_CHECK_KIND(at.self.sizes()[at.first + k] > 0, Index, "index is out of bounds for dimension with size 0");
  const auto views = at.views();
  MICA_KERNEL(self.device(), index)(result.view_of(), at.self.view_of(), at.first, views);
}

void masked_select(Out& out, const Tensor& self, const Tensor& mask) {
  MICA_CHECK(mask.dtype() == DType::Bool, "masked_select: expected BoolTensor for mask, but got ", mask.dtype());
  const DimVector sizes = broadcast_sizes(self.sizes(), mask.sizes());
  const Tensor where = mask.expand(sizes).contiguous(), from = self.expand(sizes).contiguous();
  check_out_dtype("masked_select", out, self.dtype());
  const NonzeroCount count("masked_select", where);
  const Tensor& result = out.set({count.total}, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  const Tensor dense = result.is_contiguous() ? result : empty(result.sizes(), result.options());
  MICA_KERNEL(self.device(), masked_select)(dense.view_of(), from.view_of(), where.view_of(), count.offsets.view_of());
  if (!dense.is_same(result)) result.copy_(dense);
}

// Whether a walk in row-major order would take one element of a cache line after the other, though elements lie close
// along another dimension.
static bool is_read_across(const Tensor& self) {
  constexpr int64_t kLine = 64, kLeast = 4096;
  if (!self.is_cpu() || self.dim() < 2 || self.numel() < kLeast) return false;
  const int64_t step = std::abs(self.stride(-1));
  if (self.size(-1) == 1 || step * element_size(self.dtype()) < kLine) return false;
  for (int64_t d = 0; d < self.dim() - 1; ++d)
    if (self.size(d) > 1 && self.stride(d) != 0 && std::abs(self.stride(d)) < step) return true;
  return false;
}

void nonzero(Out& out, const Tensor& tensor) {
  const auto given = out.given_dtype();
  MICA_CHECK(!given || *given == DType::Int64,
             "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
             info(given.value_or(DType::Int64)).legacy);
  const Tensor self = is_read_across(tensor) ? tensor.contiguous() : tensor;
  const NonzeroCount count("nonzero", self);
  const Tensor& result = out.set({count.total, self.dim()}, DType::Int64, self.device(), {1, count.total});
  if (out.needs_kernel())
    MICA_KERNEL(self.device(), nonzero)(result.view_of(), self.view_of(), count.offsets.view_of());
}

// ---- slices and elements of a dimension

void index_select(Out& out, const Tensor& self, int64_t dim, const Tensor& index) {
  check_out_dtype("index_select", out, self.dtype());
  MICA_CHECK_KIND(index.dim() <= 1, Index, "index_select(): Index is supposed to be a vector, but got ", index.dim(),
                  " dimensions");
  MICA_CHECK(index.dtype() == DType::Int32 || index.dtype() == DType::Int64,
             "index_select(): Expected dtype int32 or int64 for index, but got ", index.dtype());
  MICA_CHECK(self.dim() || index.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ",
             index.numel(), " value(s)");
  const int64_t d = wrap_dim(dim, self.dim());
  const Tensor at = plain_index(at_least_1d(index), self.device());
  const int64_t n = self.dim() ? self.sizes()[d] : 1;
  if (const auto bad = index_outside(at, 0, n)) {
    MICA_CHECK(n > 0, "index_select(): self indexing axis dim should be positive");
    MICA_CHECK(d == 0 && self.numel() > 0, "INDICES element is out of DATA bounds, id=", *bad, " axis_dim=", n);
    fail(ErrorKind::Index,
         mica::cat("index out of range in self: index_select() got ", *bad, " for dimension ", d, " with size ", n));
  }
  DimVector sizes(self.sizes());
  if (self.dim()) sizes[d] = at.numel();
  const Tensor& result = out.set(sizes, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  MICA_KERNEL(self.device(), index_select)(at_least_1d(result).view_of(), at_least_1d(self).view_of(), d, at.view_of());
}

void gather(Out& out, const Tensor& self, int64_t dim, const Tensor& index, bool) {
  check_out_dtype("gather", out, self.dtype());
  const int64_t d = wrap_dim(dim, self.dim());
  MICA_CHECK(index.dtype() == DType::Int32 || index.dtype() == DType::Int64 || index.numel() == 0,
             "gather(): Expected dtype int32/int64 for index, but got ", index.dtype());
  if (index.numel() > 0) {
    const Tensor a = at_least_1d(self), b = at_least_1d(index);
    MICA_CHECK(a.dim() == b.dim(), "Index tensor must have the same number of dimensions as input tensor, but got ",
               index.sizes(), " for input ", self.sizes());
    for (int64_t k = 0; k < a.dim(); ++k)
      MICA_CHECK(k == d || b.sizes()[k] <= a.sizes()[k], "Size does not match at dimension ", k, " expected index ",
                 index.sizes(), " to be no larger than self ", self.sizes(), " apart from dimension ", d);
  }
  Tensor at = index.to(self.device(), DType::Int64);
  if (out.defined_given() && index.numel() > 0) {
    // A given result stays as it is if the call fails, so its indices are checked ahead of the kernel.
    at = at.contiguous();
    const int64_t n = self.dim() ? self.sizes()[d] : 1;
    if (const auto bad = index_outside(at, 0, n))
      fail(mica::cat("index ", *bad, " is out of bounds for dimension ", d, " with size ", n));
  }
  const Tensor& result = out.set(index.sizes(), self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  MICA_KERNEL(self.device(), gather)
  (at_least_1d(result).view_of(), at_least_1d(self).view_of(), d, at_least_1d(at).view_of());
}

void take(Out& out, const Tensor& self, const Tensor& index) {
  check_out_dtype("take", out, self.dtype());
  MICA_CHECK(index.dtype() == DType::Int64, "take(): Expected a long tensor for index, but got ",
             info(index.dtype()).legacy);
  MICA_CHECK_KIND(self.numel() > 0 || index.numel() == 0, Index, "take(): tried to take from an empty tensor");
  const Tensor at = plain_index(index, self.device()).view({-1});
  if (const auto bad = index_outside(at, -self.numel(), self.numel()))
    fail(ErrorKind::Index,
         mica::cat("out of range: tried to access index ", *bad, " on a tensor of ", self.numel(), " elements."));
  const Tensor& result = out.set(index.sizes(), self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  const Tensor dense = result.is_contiguous() ? result : empty(result.sizes(), result.options());
  const TensorView* indices[] = {&at.view_of()};
  MICA_KERNEL(self.device(), index)
  (dense.view({-1}).view_of(), self.reshape({-1}).view_of(), 0, TensorViewList(indices));
  if (!dense.is_same(result)) result.copy_(dense);
}

}  // namespace shapes
}  // namespace mica
