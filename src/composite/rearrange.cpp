// Operations that move elements about, in terms of views and copies.
#include <algorithm>

#include "core/geometry.h"
#include "core/host_data.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

Tensor flip(const Tensor& self, IntArrayRef dims) {
  Tensor result = self;
  for (int64_t d : wrap_dims(dims, self.dim()))
    if (self.dim() > 0) result = slice(result, d, std::nullopt, std::nullopt, -1);
  // A reversed view would do; torch promises a copy.
  return result.clone(self.is_contiguous() ? MemoryFormat::Contiguous : MemoryFormat::Preserve);
}

Tensor fliplr(const Tensor& self) {
  MICA_CHECK(self.dim() >= 2, "Input must be >= 2-d. It has the shape ", self.sizes());
  return mica::flip(self, {1});
}
Tensor flipud(const Tensor& self) {
  MICA_CHECK(self.dim() >= 1, "Input must be >= 1-d.");
  return mica::flip(self, {0});
}

Tensor roll(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  MICA_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1)
    return mica::_unsafe_view(mica::roll(self.reshape({-1}), shifts, 0), self.sizes());
  MICA_CHECK(shifts.size() == dims.size(), "shifts and dimensions must align. shifts: ", shifts.size(),
             ", dims:", dims.size());
  MICA_CHECK_KIND(self.dim() > 0, Index, "Dimension specified as ", dims[0], " but tensor has no dimensions");
  Tensor result = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t d = wrap_dim(dims[i], self.dim()), n = self.size(d);
    if (n == 0) continue;
    const int64_t shift = ((shifts[i] % n) + n) % n;
    if (shift == 0) continue;
    const Tensor pieces[2] = {result.narrow(d, n - shift, shift), result.narrow(d, 0, n - shift)};
    result = mica::cat(TensorList(pieces, 2), d);
  }
  return result.is_same(self) ? self.clone() : result;
}

Tensor rot90(const Tensor& self, int64_t k, IntArrayRef dims) {
  MICA_CHECK(dims.size() == 2, "expected total rotation dims == 2, but got dims = ", dims.size());
  MICA_CHECK(self.dim() >= 2, "expected total dims >= 2, but got total dims = ", self.dim());
  MICA_CHECK(dims[0] != dims[1] && std::abs(dims[0] - dims[1]) != self.dim(),
             "expected rotation dims to be different, but got dim0 = ", dims[0], " and dim1 = ", dims[1]);
  const int64_t a = wrap_dim(dims[0], self.dim()), b = wrap_dim(dims[1], self.dim());
  switch (((k % 4) + 4) % 4) {
    case 1:
      return self.flip({b}).transpose(a, b);
    case 2:
      return self.flip({a, b});
    case 3:
      return self.flip({a}).transpose(a, b);
    default:
      return self.clone(MemoryFormat::Contiguous);
  }
}

Tensor repeat(const Tensor& self, IntArrayRef repeats) {
  const int64_t added = static_cast<int64_t>(repeats.size()) - self.dim();
  MICA_CHECK(added >= 0, "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  DimVector interleaved, expanded, sizes;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const int64_t own = static_cast<int64_t>(i) < added ? 1 : self.size(static_cast<int64_t>(i) - added);
    int64_t size;
    const bool overflows = __builtin_mul_overflow(repeats[i], own, &size);
    MICA_CHECK(repeats[i] >= 0, "Trying to create tensor with negative dimension ", size, ": ", repeats);
    MICA_CHECK(!overflows, "numel: integer multiplication overflow: ", own, " elements, repeated ", repeats[i],
               " times");
    interleaved.push_back(1), interleaved.push_back(own);
    expanded.push_back(repeats[i]), expanded.push_back(own);
    sizes.push_back(size);
  }
  return mica::_unsafe_view(self.reshape(interleaved).expand(expanded).clone(MemoryFormat::Contiguous), sizes);
}

Tensor tile(const Tensor& self, IntArrayRef dims) {
  DimVector repeats;
  for (int64_t i = static_cast<int64_t>(dims.size()); i < self.dim(); ++i) repeats.push_back(1);
  for (int64_t d : dims) repeats.push_back(d);
  return self.repeat(repeats);
}

Tensor repeat_interleave_counts(const Tensor& repeats, std::optional<int64_t> output_size) {
  MICA_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  MICA_CHECK(repeats.dtype() == DType::Int64 || repeats.dtype() == DType::Int32,
             "repeats has to be Long or Int tensor");
  if (repeats.is_meta() && output_size) return mica::empty(*output_size, repeats.options());
  MICA_CHECK(!repeats.is_meta(), "repeat_interleave: how often an index stands is not known on the meta device");
  // The counts are lengths of rows, and the result is each element's row, as for compressed sparse rows.
  const int64_t n = repeats.numel();
  const Tensor counts = repeats.to(DType::Int64), begins = mica::zeros({n + 1}, counts.options());
  int64_t total = 0;
  if (n > 0) {
    const Tensor ends = counts.cumsum(0);
    MICA_CHECK(counts.min().item<int64_t>() >= 0, "repeats can not be negative");
    // The running sum of counts becomes negative where it first overflows, because no count is negative.
    MICA_CHECK(ends.min().item<int64_t>() >= 0, "repeat_interleave: the sum of repeats does not fit 64 bits");
    begins.narrow(0, 1, n).copy_(ends);
    total = ends.select(0, n - 1).item<int64_t>();
  }
  MICA_CHECK(!output_size || *output_size == total, "allocated size does not match required size");
  const Tensor result = mica::empty(total, counts.options());
  if (total > 0) MICA_LAYER_KERNEL(result.device(), sparse_expand_rows)(result.view_of(), begins.view_of());
  return result.to(repeats.dtype());
}

Tensor repeat_interleave(const Tensor& self, const Tensor& repeats, std::optional<int64_t> dim,
                         std::optional<int64_t> output_size) {
  const Tensor input = dim ? self : self.flatten();
  const int64_t d = dim ? wrap_dim(*dim, input.dim()) : 0;
  const int64_t n = input.dim() ? input.size(d) : 1;
  Tensor counts = repeats;
  if (repeats.dim() == 0 || (repeats.dim() == 1 && repeats.size(0) == 1)) {
    counts = repeats.reshape({1}).expand({n});
  } else {
    MICA_CHECK(repeats.dim() == 1, "repeats must be 0-dim or 1-dim tensor");
    MICA_CHECK(repeats.size(0) == n,
               "repeats must have the same size as input along dim, but got repeats.size(0) = ", repeats.size(0),
               " and input.size(", d, ") = ", n);
  }
  return input.index_select(d, mica::repeat_interleave(counts, output_size));
}

Tensor repeat_interleave(const Tensor& self, int64_t repeats, std::optional<int64_t> dim,
                         std::optional<int64_t> output_size) {
  MICA_CHECK(repeats >= 0, "Repeats must be non-negative");
  const Tensor input = dim ? self : self.flatten();
  if (input.dim() == 0) return mica::repeat_interleave(input.reshape({1}), repeats, 0, output_size);
  const int64_t d = dim ? wrap_dim(*dim, input.dim()) : 0;
  DimVector expanded(input.sizes());
  expanded.insert(d + 1, repeats);
  const int64_t repeated = count_elements({input.size(d), repeats});
  MICA_CHECK(!output_size || *output_size == repeated, "repeat_interleave: Invalid output_size, expected ", repeated,
             " but got ", output_size.value_or(0));
  return input.unsqueeze(d + 1).expand(expanded).clone(MemoryFormat::Contiguous).flatten(d, d + 1);
}

Tensor broadcast_to(const Tensor& self, IntArrayRef size) { return self.expand(size); }
Tensor expand_as(const Tensor& self, const Tensor& other) { return self.expand(other.sizes()); }
Tensor view_as(const Tensor& self, const Tensor& other) { return self.view(other.sizes()); }
Tensor reshape_as(const Tensor& self, const Tensor& other) { return self.reshape(other.sizes()); }
Tensor type_as(const Tensor& self, const Tensor& other) { return self.to(other.options()); }

Tensor unflatten(const Tensor& self, int64_t dim, IntArrayRef sizes) {
  const int64_t d = wrap_dim(dim, self.dim(), false);
  MICA_CHECK(!sizes.empty(), "unflatten: sizes must be non-empty");
  int64_t known = 1, unknown = 0;
  bool overflows = false;
  for (int64_t s : sizes) s == -1 ? unknown += 1 : overflows |= __builtin_mul_overflow(known, s, &known);
  const int64_t n = self.size(d);
  MICA_CHECK(!overflows && unknown <= 1 && (unknown ? known != 0 && n % known == 0 : known == n),
             "unflatten: Provided sizes ", sizes, " don't multiply up to the size of dim ", d, " (", n,
             ") in the input tensor");
  DimVector shape(self.sizes().slice(0, d));
  for (int64_t s : sizes) shape.push_back(s == -1 ? n / known : s);
  for (int64_t i = d + 1; i < self.dim(); ++i) shape.push_back(self.size(i));
  return self.view(shape);
}

Tensor ravel(const Tensor& self) { return self.contiguous().view({-1}); }
Tensor narrow_copy(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  return self.narrow(dim, start, length).clone(MemoryFormat::Contiguous);
}
void narrow_copy_out(const Tensor& out, const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  mica::alias_copy_out(out, self.narrow(dim, start, length));
}

Tensor atleast_1d(const Tensor& self) { return self.dim() == 0 ? self.reshape({1}) : self; }
Tensor atleast_2d(const Tensor& self) {
  return self.dim() == 0 ? self.reshape({1, 1}) : self.dim() == 1 ? self.unsqueeze(0) : self;
}
Tensor atleast_3d(const Tensor& self) {
  switch (self.dim()) {
    case 0:
      return self.reshape({1, 1, 1});
    case 1:
      return self.unsqueeze(0).unsqueeze(-1);
    case 2:
      return self.unsqueeze(-1);
    default:
      return self;
  }
}

Tensor numpy_T(const Tensor& self) {
  DimVector order;
  for (int64_t d = self.dim() - 1; d >= 0; --d) order.push_back(d);
  return self.permute(order);
}
Tensor matrix_H(const Tensor& self) {
  MICA_CHECK(self.dim() == 2 || self.dim() == 0, "tensor.H is only supported on matrices (2-D tensors). Got ",
             self.dim(), "-D tensor.", self.dim() > 2 ? " For batches of matrices, consider using tensor.mH" : "");
  return self.dim() == 0 ? self.conj() : self.transpose(0, 1).conj();
}
Tensor mT(const Tensor& self) {
  if (self.dim() == 0) {
    MICA_WARN_ONCE("Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases.");
    return self;
  }
  MICA_CHECK(self.dim() >= 2, "tensor.mT is only supported on matrices or batches of matrices. Got ", self.dim(),
             "-D tensor.");
  return self.transpose(-2, -1);
}
Tensor adjoint(const Tensor& self) {
  MICA_CHECK(self.dim() != 1, "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.");
  return self.dim() == 0 ? self.conj() : self.transpose(-2, -1).conj();
}
Tensor mH(const Tensor& self) {
  if (self.dim() == 0) {
    MICA_WARN_ONCE("Tensor.mH is deprecated on 0-D tensors. Consider using x.conj().");
    return self.conj();
  }
  MICA_CHECK(self.dim() >= 2, "tensor.mH is only supported on matrices or batches of matrices. Got ", self.dim(),
             "-D tensor.");
  return mica::adjoint(self);
}

Tensor diag(const Tensor& self, int64_t diagonal) {
  MICA_CHECK(self.dim() == 1 || self.dim() == 2, "diag(): Supports 1D or 2D tensors. Got ", self.dim(), "D");
  return self.dim() == 1 ? self.diag_embed(diagonal) : self.diagonal(diagonal).clone();
}

Tensor diag_embed(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t n = self.dim() + 1;
  MICA_CHECK(self.dim() > 0, "diag_embed: the input must have at least one dimension");
  const int64_t a = wrap_dim(dim1, n), b = wrap_dim(dim2, n);
  MICA_CHECK(a != b, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  const int64_t side = self.size(-1) + std::abs(offset);
  DimVector sizes(self.sizes().slice(0, self.dim() - 1));
  sizes.insert(std::min(a, b), side);
  sizes.insert(std::max(a, b), side);
  Tensor result = mica::zeros(sizes, self.options());
  result.diagonal(offset, a, b).copy_(self);
  return result;
}

Tensor diagflat(const Tensor& self, int64_t offset) { return self.contiguous().view({-1}).diag(offset); }

Tensor vander(const Tensor& x, std::optional<int64_t> N, bool increasing) {
  MICA_CHECK(x.dim() == 1, "x must be a one-dimensional tensor.");
  const int64_t n = N.value_or(x.size(0));
  MICA_CHECK(n >= 0, "N must be non-negative.");
  const Tensor powers = mica::arange(0, n, 1, TensorOptions(DType::Int64).device(x.device()));
  const Tensor base = is_integral(x.dtype()) || x.dtype() == DType::Bool ? x.to(DType::Int64) : x;
  return base.unsqueeze(-1).pow(increasing ? powers : powers.flip({0}));
}

Tensor combinations(const Tensor& self, int64_t r, bool with_replacement) {
  MICA_CHECK(self.dim() == 1, "Expect a 1D vector, but got shape ", self.sizes());
  MICA_CHECK(r >= 0, "Expect a non-negative number, but got ", r);
  if (r == 0) return mica::empty({0}, self.options());
  // Index tuples in lexicographic order.
  const int64_t n = self.size(0);
  std::vector<int64_t> current(static_cast<size_t>(r)), all;
  auto extend = [&](auto& next, int64_t at, int64_t from) -> void {
    if (at == r) {
      all.insert(all.end(), current.begin(), current.end());
      return;
    }
    for (int64_t i = from; i < n; ++i) {
      current[static_cast<size_t>(at)] = i;
      next(next, at + 1, with_replacement ? i : i + 1);
    }
  };
  extend(extend, 0, 0);
  const Tensor index = mica::empty(static_cast<int64_t>(all.size()), TensorOptions(DType::Int64).device(kCPU));
  std::copy(all.begin(), all.end(), host_data<int64_t>(index));
  return mica::_unsafe_view(self.index_select(0, index.to(TensorOptions(self.device()))), {-1, r});
}

bool is_set_to(const Tensor& self, const Tensor& tensor) {
  return self.storage() == tensor.storage() && self.storage_offset() == tensor.storage_offset() &&
         self.sizes() == tensor.sizes() && self.strides() == tensor.strides();
}
bool is_same_size(const Tensor& self, const Tensor& other) { return self.sizes() == other.sizes(); }

Tensor fill(const Tensor& self, const Scalar& value) { return self.clone().fill_(value); }
Tensor fill(const Tensor& self, const Tensor& value) { return self.clone().fill_(value); }

}  // namespace mica::composite
