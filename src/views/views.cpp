// View operations: new sizes, strides and offset over the same storage. No data is touched.
#include <algorithm>

#include "core/allocate.h"
#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::views {

Tensor alias(const Tensor& self) { return mica::make_view(self, self.sizes(), self.strides(), self.storage_offset()); }

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset) {
  MICA_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape: ", stride, " and ", size);
  const int64_t numel = count_elements(size);
  const int64_t offset = storage_offset.value_or(self.storage_offset());
  MICA_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  if (numel > 0) {
    int64_t low = offset, high = offset;
    bool fits = true;
    for (size_t d = 0; d < size.size() && fits; ++d) {
      int64_t span;
      fits = !__builtin_mul_overflow(size[d] - 1, stride[d], &span) &&
             !__builtin_add_overflow(span < 0 ? low : high, span, span < 0 ? &low : &high);
    }
    int64_t bytes;
    MICA_CHECK(!fits || (high < INT64_MAX && !__builtin_mul_overflow(high + 1, self.element_size(), &bytes)),
               "Storage size calculation overflowed with sizes=", size, " and strides=", stride);
    const int64_t capacity = static_cast<int64_t>(self.storage()->nbytes()) / self.element_size();
    MICA_CHECK(fits && low >= 0 && high < capacity, "setStorage: sizes ", size, ", strides ", stride,
               ", storage offset ", offset, ", and itemsize ", self.element_size(), " requiring elements ", low, " to ",
               high, " are out of bounds for storage of ", capacity, " elements");
  }
  return make_view(self, size, stride, offset);
}

Tensor select(const Tensor& self, int64_t dim, int64_t index) {
  const TensorView& v = self.impl()->view;
  MICA_CHECK_KIND(v.ndim > 0, Index, "select() cannot be applied to a 0-dim tensor.");
  const int64_t d = wrap_dim(dim, v.ndim);
  const int64_t n = v.sizes[d];
  MICA_CHECK_KIND(index >= -n && index < n, Index, "select(): index ", index, " out of range for tensor of size ",
                  self.sizes(), " at dimension ", d);
  const int64_t at = index < 0 ? index + n : index;
  if (v.ndim <= TensorImpl::kInlineDims) {
    int64_t sizes[TensorImpl::kInlineDims], strides[TensorImpl::kInlineDims];
    size_t k = 0;
    for (int64_t i = 0; i < v.ndim; ++i)
      if (i != d) sizes[k] = v.sizes[i], strides[k] = v.strides[i], ++k;
    return make_view(self, {sizes, k}, {strides, k}, self.storage_offset() + at * v.strides[d]);
  }
  DimVector sizes(self.sizes()), strides(self.strides());
  sizes.erase(d);
  strides.erase(d);
  return make_view(self, sizes, strides, self.storage_offset() + at * v.strides[d]);
}

// Python's slice rules for one dimension: clamped bounds, any non-zero step.
Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  MICA_CHECK_KIND(self.dim() > 0, Runtime, "slice() cannot be applied to a 0-dim tensor.");
  MICA_CHECK_KIND(step != 0, Value, "slice step must not be zero");
  const int64_t d = wrap_dim(dim, self.dim());
  const int64_t n = self.sizes()[d];
  auto clamp = [&](int64_t v, int64_t low, int64_t high) { return std::clamp(v < 0 ? v + n : v, low, high); };
  int64_t from, count;
  if (step > 0) {
    from = clamp(start.value_or(0), 0, n);
    const int64_t to = end ? clamp(*end, 0, n) : n;
    count = to > from ? (to - from - 1) / step + 1 : 0;
  } else {
    from = start ? clamp(*start, -1, n - 1) : n - 1;
    const int64_t to = end ? clamp(*end, -1, n - 1) : -1;
    count = from > to ? 1 - (from - to - 1) / step : 0;  // written without -step, which may overflow
    if (count == 0) from = 0;
  }
  DimVector sizes(self.sizes()), strides(self.strides());
  const int64_t offset = self.storage_offset() + from * strides[d];
  sizes[d] = count;
  if (count > 1 || (step > 0 && step < n)) {
    strides[d] *= step;
  } else if (__builtin_mul_overflow(strides[d], step, &strides[d])) {
    strides[d] = 1;  // at most one element, so the stride is never used
  }
  return make_view(self, sizes, strides, offset);
}

Tensor expand(const Tensor& self, IntArrayRef size, bool) {
  const int64_t added = static_cast<int64_t>(size.size()) - self.dim();
  MICA_CHECK(added >= 0, "expand(", self, ", size=", size, "): the number of sizes provided (", size.size(),
             ") must be greater or equal to the number of dimensions in the tensor (", self.dim(), ")");
  DimVector sizes(size), strides(size.size());
  for (int64_t i = static_cast<int64_t>(size.size()) - 1; i >= 0; --i) {
    const int64_t at = i - added;
    if (at < 0) {
      MICA_CHECK(size[i] >= 0, "The expanded size of the tensor (", size[i],
                 ") isn't allowed in a leading, non-existing dimension ", i);
      // A new dimension of size one has the stride that unsqueeze gives it.
      strides[i] = 0;
      if (size[i] == 1 && self.dim() > 0 && __builtin_mul_overflow(sizes[i + 1], strides[i + 1], &strides[i]))
        strides[i] = 1;  // without elements
      continue;
    }
    const int64_t own = self.sizes()[at];
    if (size[i] == -1) sizes[i] = own;
    MICA_CHECK(sizes[i] == own || (own == 1 && sizes[i] >= 0), "The expanded size of the tensor (", size[i],
               ") must match the existing size (", own, ") at non-singleton dimension ", i, ".  Target sizes: ", size,
               ".  Tensor sizes: ", self.sizes());
    strides[i] = sizes[i] == own ? self.strides()[at] : 0;
  }
  return make_view(self, sizes, strides, self.storage_offset());
}

Tensor permute(const Tensor& self, IntArrayRef dims) {
  MICA_CHECK(static_cast<int64_t>(dims.size()) == self.dim(),
             "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
             "ordering of dimensions i.e. input.dim() = ",
             self.dim(), " is not equal to len(dims) = ", dims.size());
  DimVector sizes(dims.size()), strides(dims.size());
  uint64_t seen = 0;  // a bit for each of the first 64 dimensions; for others the list itself is searched
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t d = wrap_dim(dims[i], self.dim());
    bool again = d < 64 && (seen >> d & 1);
    for (size_t j = 0; d >= 64 && j < i; ++j) again |= wrap_dim(dims[j], self.dim()) == d;
    MICA_CHECK(!again, "permute(): duplicate dims are not allowed.");
    if (d < 64) seen |= uint64_t{1} << d;
    sizes[i] = self.sizes()[d];
    strides[i] = self.strides()[d];
  }
  return make_view(self, sizes, strides, self.storage_offset());
}

Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  const int64_t a = wrap_dim(dim0, self.dim()), b = wrap_dim(dim1, self.dim());
  DimVector sizes(self.sizes()), strides(self.strides());
  if (self.dim() > 0) {
    std::swap(sizes[a], sizes[b]);
    std::swap(strides[a], strides[b]);
  }
  return make_view(self, sizes, strides, self.storage_offset());
}

Tensor t(const Tensor& self) {
  MICA_CHECK(self.dim() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ", self.dim(), "D");
  return views::transpose(self, 0, self.dim() < 2 ? 0 : 1);
}

Tensor unsqueeze(const Tensor& self, int64_t dim) {
  const int64_t d = wrap_dim(dim, self.dim() + 1);
  DimVector sizes(self.sizes()), strides(self.strides());
  const int64_t stride = d < self.dim() ? sizes[d] * strides[d] : 1;
  sizes.insert(d, 1);
  strides.insert(d, stride);
  return make_view(self, sizes, strides, self.storage_offset());
}

namespace {

template <class Chosen>
Tensor squeeze_where(const Tensor& self, const Chosen& is_chosen) {
  DimVector sizes, strides;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (self.sizes()[d] == 1 && is_chosen(d)) continue;
    sizes.push_back(self.sizes()[d]);
    strides.push_back(self.strides()[d]);
  }
  return make_view(self, sizes, strides, self.storage_offset());
}

}  // namespace

Tensor squeeze(const Tensor& self) {
  return squeeze_where(self, [](int64_t) { return true; });
}
Tensor squeeze_dim(const Tensor& self, int64_t dim) {
  const int64_t chosen = wrap_dim(dim, self.dim());
  return squeeze_where(self, [&](int64_t d) { return d == chosen; });
}
Tensor squeeze_dims(const Tensor& self, IntArrayRef dim) {
  MICA_CHECK(self.dim() <= 64, "only tensors with up to 64 dims are supported: this one has ", self.dim());
  uint64_t chosen = 0;
  for (int64_t d : wrap_dims(dim, self.dim())) chosen |= uint64_t{1} << d;
  return squeeze_where(self, [&](int64_t d) { return (chosen >> d & 1) != 0; });
}

Tensor view(const Tensor& self, IntArrayRef size) {
  const bool contiguous = self.impl()->contiguous;
  if (contiguous && self.numel() > 0 && has_elements(size, self.numel()))
    return make_contiguous_view(self, size, self.storage_offset());
  const DimVector sizes = infer_size(size, self.numel());
  // Beside a zero, sizes may be of any number, but strides must not overflow.
  if (self.numel() == 0) (void)contiguous_strides(sizes);
  if (contiguous) return make_contiguous_view(self, sizes, self.storage_offset());
  const auto strides = view_strides(self.sizes(), self.strides(), sizes);
  MICA_CHECK(strides,
             "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
             "contiguous subspaces). Use .reshape(...) instead. ",
             view_obstacle(self.sizes(), self.strides(), sizes), ".");
  return make_view(self, sizes, *strides, self.storage_offset());
}

Tensor view_dtype(const Tensor& self, DType dtype) {
  const int64_t from = self.element_size(), to = element_size(dtype);
  MICA_CHECK(!self.is_conj(),
             "torch.Tensor.view is not supported for conjugate view tensors when converting to a different dtype; call "
             "resolve_conj() first");
  MICA_CHECK(!self.is_neg(),
             "torch.Tensor.view is not supported for tensors with negative bit set when converting to a different "
             "dtype; call resolve_neg() first");
  DimVector sizes(self.sizes()), strides(self.strides());
  int64_t offset = self.storage_offset();
  if (from != to) {
    const int64_t n = self.dim();
    MICA_CHECK(n > 0, "self.dim() cannot be 0 to view ", self.dtype(), " as ", dtype, " (different element sizes)");
    if (from > to) {
      const int64_t ratio = from / to;
      MICA_CHECK(strides[n - 1] == 1 || sizes[n - 1] == 1, "self.stride(-1) must be 1 to view ", self.dtype(), " as ",
                 dtype, " (different element sizes), but got ", strides[n - 1]);
      for (int64_t d = 0; d < n - 1; ++d) strides[d] *= ratio;
      strides[n - 1] = 1;
      sizes[n - 1] *= ratio;
      offset *= ratio;
    } else {
      const int64_t ratio = to / from;
      MICA_CHECK(sizes[n - 1] % ratio == 0, "self.size(-1) must be divisible by ", ratio, " to view ", self.dtype(),
                 " as ", dtype, " (different element sizes), but got ", sizes[n - 1]);
      MICA_CHECK(strides[n - 1] == 1 || sizes[n - 1] == 1, "self.stride(-1) must be 1 to view ", self.dtype(), " as ",
                 dtype, " (different element sizes), but got ", strides[n - 1]);
      MICA_CHECK(offset % ratio == 0, "self.storage_offset() must be divisible by ", ratio, " to view ", self.dtype(),
                 " as ", dtype, " (different element sizes), but got ", offset);
      for (int64_t d = 0; d < n - 1; ++d) {
        MICA_CHECK(strides[d] % ratio == 0 || sizes[d] == 1, "self.stride(", d, ") must be divisible by ", ratio,
                   " to view ", self.dtype(), " as ", dtype, " (different element sizes), but got ", strides[d]);
        strides[d] /= ratio;
      }
      strides[n - 1] = 1;
      sizes[n - 1] /= ratio;
      offset /= ratio;
    }
  }
  return make_view_as(self, dtype, sizes, strides, offset);
}

Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  const int64_t d = wrap_dim(dimension, self.dim());
  const int64_t n = self.dim() == 0 ? 1 : self.sizes()[d];
  MICA_CHECK(size >= 0, "size is ", size, " but must be >= 0");
  MICA_CHECK(size <= n, "maximum size for tensor at dimension ", d, " is ", n, " but size is ", size);
  MICA_CHECK(step > 0, "step is ", step, " but must be > 0");
  DimVector sizes(self.sizes()), strides(self.strides());
  sizes.push_back(size);
  strides.push_back(self.dim() == 0 ? 1 : strides[d]);
  if (self.dim() > 0) {
    sizes[d] = (n - size) / step + 1;
    strides[d] *= step;
  }
  return make_view(self, sizes, strides, self.storage_offset());
}

Tensor diagonal(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t a = wrap_dim(dim1, self.dim()), b = wrap_dim(dim2, self.dim());
  MICA_CHECK(a != b, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  DimVector sizes(self.sizes()), strides(self.strides());
  const int64_t rows = sizes[a], columns = sizes[b];
  const int64_t length =
      std::max<int64_t>(offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns), 0);
  int64_t start = self.storage_offset();
  if (length > 0) start += offset >= 0 ? offset * strides[b] : -offset * strides[a];
  int64_t stride;
  // At most one element, so the stride is never used.
  if (__builtin_add_overflow(strides[a], strides[b], &stride)) stride = 1;
  sizes.erase(std::max(a, b));
  strides.erase(std::max(a, b));
  sizes.erase(std::min(a, b));
  strides.erase(std::min(a, b));
  sizes.push_back(length);
  strides.push_back(stride);
  return make_view(self, sizes, strides, start);
}

std::vector<Tensor> unbind(const Tensor& self, int64_t dim) {
  const int64_t d = wrap_dim(dim, self.dim(), false);
  std::vector<Tensor> result;
  for (int64_t i = 0; i < self.sizes()[d]; ++i) result.push_back(views::select(self, d, i));
  return result;
}

std::vector<Tensor> split(const Tensor& self, int64_t split_size, int64_t dim) {
  MICA_CHECK(self.dim() > 0, "split expects at least a 1-dimensional tensor");
  MICA_CHECK(split_size >= 0, "split expects split_size be non-negative, but got split_size=", split_size);
  const int64_t d = wrap_dim(dim, self.dim());
  const int64_t n = self.sizes()[d];
  MICA_CHECK(split_size > 0 || n == 0, "split_size can only be 0 if dimension size is 0, but got dimension size of ",
             n);
  const int64_t pieces = split_size == 0 ? 1 : std::max<int64_t>((n + split_size - 1) / split_size, 1);
  std::vector<Tensor> result;
  for (int64_t i = 0; i < pieces; ++i)
    result.push_back(views::slice(self, d, i * split_size, std::min(n, (i + 1) * split_size), 1));
  return result;
}

std::vector<Tensor> split_with_sizes(const Tensor& self, IntArrayRef split_sizes, int64_t dim) {
  MICA_CHECK(self.dim() > 0, "split_with_sizes expects at least a 1-dimensional tensor");
  const int64_t d = wrap_dim(dim, self.dim());
  const int64_t n = self.sizes()[d];
  int64_t total = 0;
  for (int64_t s : split_sizes) {
    MICA_CHECK(s >= 0, "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes=",
               split_sizes);
    MICA_CHECK(!__builtin_add_overflow(total, s, &total), "split_with_sizes: the sizes overflow: ", split_sizes);
  }
  MICA_CHECK(total == n, "split_with_sizes expects split_sizes to sum exactly to ", n,
             " (input tensor's size at dimension ", d, "), but got split_sizes=", split_sizes);
  std::vector<Tensor> result;
  int64_t at = 0;
  for (int64_t s : split_sizes) {
    result.push_back(views::slice(self, d, at, at + s, 1));
    at += s;
  }
  return result;
}

Tensor view_as_real(const Tensor& self) {
  MICA_CHECK(self.is_complex(), "view_as_real is only supported for complex tensors");
  MICA_CHECK(
      !self.is_conj(),
      "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it "
      "as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original.");
  DimVector sizes(self.sizes()), strides;
  for (int64_t s : self.strides()) strides.push_back(2 * s);
  sizes.push_back(2);
  strides.push_back(1);
  return make_view_as(self, to_real(self.dtype()), sizes, strides, 2 * self.storage_offset());
}

Tensor view_as_complex(const Tensor& self) {
  MICA_CHECK(self.dtype() == DType::Float16 || self.dtype() == DType::Float32 || self.dtype() == DType::Float64,
             "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: ",
             info(self.dtype()).legacy);
  MICA_CHECK(self.dim() > 0, "Input tensor must have one or more dimensions");
  MICA_CHECK(self.sizes().back() == 2, "Tensor must have a last dimension of size 2, but its shape is ", self.sizes());
  MICA_CHECK(self.strides().back() == 1, "Tensor must have a last dimension with stride 1, but its strides are ",
             self.strides());
  DimVector sizes(self.sizes()), strides(self.strides());
  sizes.pop_back();
  strides.pop_back();
  for (int64_t& s : strides) {
    MICA_CHECK(s % 2 == 0, "Tensor must have a stride divisible by 2 for all but last dimension");
    s /= 2;
  }
  MICA_CHECK(self.storage_offset() % 2 == 0, "Tensor must have a storage_offset divisible by 2");
  return make_view_as(self, to_complex(self.dtype()), sizes, strides, self.storage_offset() / 2);
}

Tensor lazy_conj(const Tensor& self) {
  Tensor result = views::alias(self);
  result.impl()->bits ^= tensor_bit::kConj;
  return result;
}

Tensor lazy_neg(const Tensor& self) {
  Tensor result = views::alias(self);
  result.impl()->bits ^= tensor_bit::kNeg;
  return result;
}

}  // namespace mica::views
