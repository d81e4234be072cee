// Other shapes of sparse tensors: dimensions moved, added and chosen from; tensors joined.
#include <algorithm>

#include "core/entry.h"
#include "core/geometry.h"
#include "layouts/sparse/parts.h"
#include "mica/generated/layouts/sparse.h"

namespace mica::layouts::sparse {

namespace {

Tensor through_coo(const Tensor& self) { return is_coo(self) ? self : mica::_convert_layout(self, Layout::SparseCoo); }

Layout turned(Layout layout) {
  switch (layout) {
    case Layout::SparseCsr:
      return Layout::SparseCsc;
    case Layout::SparseCsc:
      return Layout::SparseCsr;
    case Layout::SparseBsr:
      return Layout::SparseBsc;
    default:
      return Layout::SparseBsr;
  }
}

}  // namespace

// Additional rows hold nothing, and additional columns change nothing. Fewer would leave elements without a place.
void resize_(const Tensor& self, IntArrayRef size, std::optional<MemoryFormat>) {
  if (self.layout() != Layout::SparseCsr) entry::refuse_layout("resize_", std::vector<Tensor>{self});
  const size_t n = size.size();
  MICA_CHECK(n >= 2 && n == self.sizes().size() && self.sizes().slice(0, n - 2) == size.slice(0, n - 2),
             "torch.resize_: Only batched sparse CSR matrices are supported, whose batch stays, but got size ", size,
             " for one of size ", self.sizes());
  const int64_t rows = self.sizes()[n - 2], columns = self.sizes()[n - 1];
  MICA_CHECK(size[n - 1] >= columns,
             "torch.resize_: Resizing columns of sparse CSR tensors to a smaller value is not supported. The original "
             "number of columns is ",
             columns, " while the requested new number of columns is ", size[n - 1], ".");
  MICA_CHECK(size[n - 2] >= rows, "torch.resize_: ", size[n - 2], " rows have no place for the elements of ", rows,
             "; select those that are wanted");
  const SparseParts& p = sparse_parts(self);
  Tensor compressed = p.compressed;
  if (size[n - 2] > rows) {
    DimVector more(compressed.sizes());
    more.back() = size[n - 2] - rows;
    const Tensor last = compressed.narrow(-1, rows, 1);
    compressed = mica::cat({compressed, last.expand(more)}, -1);
  }
  const Tensor made = mica::_sparse_compressed_tensor_unsafe(compressed, p.indices, p.values, size, self.layout());
  const DimVector strides(n, 0);
  self.impl()->rare->sparse = made.impl()->rare->sparse;
  self.impl()->set_geometry(size, strides, 0);
  self.impl()->contiguous = false;
}

Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  const int64_t a = wrap_dim(dim0, self.dim()), b = wrap_dim(dim1, self.dim());
  if (a == b) return with_values(self, values_of(self));
  DimVector sizes(self.sizes());
  std::swap(sizes[a], sizes[b]);
  const SparseParts& p = sparse_parts(self);
  if (is_coo(self)) {
    const bool sparse_a = a < p.sparse_dim, sparse_b = b < p.sparse_dim;
    MICA_CHECK(sparse_a == sparse_b, "transpose(): cannot transpose a sparse and a dense dimension (", dim0, " and ",
               dim1, ") of a tensor with ", p.sparse_dim, " sparse dimensions");
    if (!sparse_a)
      return coo(p.indices, values_of(self).transpose(a - p.sparse_dim + 1, b - p.sparse_dim + 1), sizes, p.coalesced);
    std::vector<Tensor> rows;
    for (int64_t d = 0; d < p.sparse_dim; ++d) rows.push_back(p.indices.select(0, d == a ? b : d == b ? a : d));
    return coo(mica::stack(rows), values_of(self), sizes, false);
  }
  const int64_t batch = p.compressed.dim() - 1;
  MICA_CHECK(std::min(a, b) == batch && std::max(a, b) == batch + 1,
             "transpose(): can only transpose the two sparse dimensions of a tensor of layout ", self.layout(),
             ", but got ", dim0, " and ", dim1);
  Tensor values = values_of(self);
  if (has_blocks(self.layout())) values = values.transpose(batch + 1, batch + 2);
  return mica::_sparse_compressed_tensor_unsafe(p.compressed, p.indices, values, sizes, turned(self.layout()));
}

Tensor t(const Tensor& self) {
  if (is_coo(self))
    MICA_CHECK(self.dim() < 2 || (self.dim() == 2 && sparse_parts(self).sparse_dim == 2),
               "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got ", sparse_parts(self).sparse_dim,
               " sparse and ", sparse_parts(self).dense_dim, " dense dimensions");
  const SparseParts& p = sparse_parts(self);
  const int64_t dense = is_coo(self) ? self.dim() - p.sparse_dim : 0;
  MICA_CHECK(self.dim() <= 2 && dense == 0, "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got ",
             self.dim() - dense, " sparse and ", dense, " dense dimensions");
  return self.dim() < 2 ? with_values(self, values_of(self)) : sparse::transpose(self, 0, 1);
}

Tensor permute(const Tensor& self, IntArrayRef dims) {
  MICA_CHECK(static_cast<int64_t>(dims.size()) == self.dim(),
             "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
             "ordering of dimensions i.e. input.dim() = ",
             self.dim(), " is not equal to len(dims) = ", dims.size());
  if (is_compressed(self)) {
    DimVector order(dims);
    for (size_t i = 0; i < order.size(); ++i) order[i] = wrap_dim(order[i], self.dim());
    if (self.dim() == 2) return order[0] == 1 ? sparse::transpose(self, 0, 1) : with_values(self, values_of(self));
    entry::refuse_layout("permute", std::vector<Tensor>{self});
  }
  const SparseParts& p = sparse_parts(self);
  std::vector<Tensor> rows;
  DimVector sizes, dense{0};
  std::vector<bool> seen(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t d = wrap_dim(dims[i], self.dim());
    MICA_CHECK(!seen[static_cast<size_t>(d)], "permute(sparse_coo): duplicate dims are not allowed.");
    seen[static_cast<size_t>(d)] = true;
    const bool to_sparse = static_cast<int64_t>(i) < p.sparse_dim;
    MICA_CHECK(to_sparse == (d < p.sparse_dim),
               "permute(sparse_coo): transpositions between sparse and dense "
               "dimensions are not allowed. Got transposition of dim ",
               i, " and dim ", d);
    sizes.push_back(self.size(d));
    if (to_sparse) {
      rows.push_back(p.indices.select(0, d));
    } else {
      dense.push_back(d - p.sparse_dim + 1);
    }
  }
  const Tensor indices = rows.empty() ? p.indices : mica::stack(rows);
  return coo(indices, values_of(self).permute(dense), sizes, false);
}

Tensor view_as_real(const Tensor& self) {
  if (!is_coo(self)) entry::refuse_layout("view_as_real", std::vector<Tensor>{self});
  const SparseParts& p = sparse_parts(self);
  DimVector sizes(self.sizes());
  sizes.push_back(2);
  return coo(p.indices, mica::view_as_real(values_of(self)), sizes, p.coalesced);
}

Tensor view_as_complex(const Tensor& self) {
  if (!is_coo(self)) entry::refuse_layout("view_as_complex", std::vector<Tensor>{self});
  const SparseParts& p = sparse_parts(self);
  MICA_CHECK(self.dim() > p.sparse_dim && self.sizes().back() == 2,
             "view_as_complex_sparse is only supported for sparse tensors with the last dim == 2 and dense_dim > 0.");
  DimVector sizes(self.sizes());
  sizes.pop_back();
  return coo(p.indices, mica::view_as_complex(values_of(self)), sizes, p.coalesced);
}

Tensor unsqueeze(const Tensor& self, int64_t dim) {
  const Tensor c = through_coo(self);
  const SparseParts& p = sparse_parts(c);
  const int64_t d = wrap_dim(dim, self.dim() + 1);
  DimVector sizes;
  for (int64_t i = 0; i <= self.dim(); ++i) {
    if (i == d) sizes.push_back(1);
    if (i < self.dim()) sizes.push_back(self.size(i));
  }
  if (d > p.sparse_dim) return coo(p.indices, values_of(c).unsqueeze(d - p.sparse_dim + 1), sizes, p.coalesced);
  const Tensor zeros = mica::zeros({1, p.indices.size(1)}, p.indices.options());
  const Tensor indices = mica::cat({p.indices.narrow(0, 0, d), zeros, p.indices.narrow(0, d, p.sparse_dim - d)}, 0);
  return coo(indices, values_of(c), sizes, p.coalesced);
}

Tensor squeeze_dim(const Tensor& self, int64_t dim) {
  const int64_t d = wrap_dim(dim, self.dim());
  if (self.size(d) != 1) return with_values(self, values_of(self));
  const Tensor c = through_coo(self);
  const SparseParts& p = sparse_parts(c);
  DimVector sizes(self.sizes());
  sizes.erase(d);
  if (d >= p.sparse_dim) return coo(p.indices, values_of(c).squeeze(d - p.sparse_dim + 1), sizes, p.coalesced);
  const Tensor indices = mica::cat({p.indices.narrow(0, 0, d), p.indices.narrow(0, d + 1, p.sparse_dim - d - 1)}, 0);
  return coo(indices, values_of(c), sizes, p.coalesced);
}

Tensor squeeze(const Tensor& self) {
  Tensor result = self;
  for (int64_t d = self.dim() - 1; d >= 0; --d)
    if (self.size(d) == 1) result = squeeze_dim(result, d);
  return result;
}

// The slice of a compressed tensor's batch.
static Tensor select_batch(const Tensor& self, int64_t d, int64_t index) {
  const SparseParts& p = sparse_parts(self);
  DimVector sizes(self.sizes());
  sizes.erase(d);
  return mica::_sparse_compressed_tensor_unsafe(p.compressed.select(d, index), p.indices.select(d, index),
                                                values_of(self).select(d, index), sizes, self.layout());
}

Tensor select(const Tensor& self, int64_t dim, int64_t index) {
  MICA_CHECK_KIND(self.dim() > 0, Index, "select() cannot be applied to a 0-dim tensor.");
  const int64_t d = wrap_dim(dim, self.dim()), n = self.size(d);
  MICA_CHECK_KIND(index >= -n && index < n, Index, "select(): index ", index, " out of range for tensor of size ",
                  self.sizes(), " at dimension ", d);
  const int64_t at = index < 0 ? index + n : index;
  if (is_compressed(self)) {
    const int64_t batch = sparse_parts(self).compressed.dim() - 1;
    if (d < batch) return select_batch(self, d, at);
    MICA_CHECK(batch == 0 || d >= batch + 2, "selecting sparse dimensions is not supported for batched sparse ",
               "compressed tensors.");
    return sparse::select(mica::_convert_layout(self, Layout::SparseCoo).coalesce(), d, at);
  }
  const SparseParts& p = parts_of(self);
  DimVector sizes(self.sizes());
  sizes.erase(d);
  if (d >= p.sparse_dim) return coo(p.indices, values_of(self).select(d - p.sparse_dim + 1, at), sizes, p.coalesced);
  const Tensor chosen = p.indices.select(0, d).eq(Scalar(at)).nonzero().squeeze(1);
  if (p.sparse_dim == 1) return values_of(self).index_select(0, chosen).sum(IntArrayRef{0}).to(self.dtype());
  const Tensor rest = mica::cat({p.indices.narrow(0, 0, d), p.indices.narrow(0, d + 1, p.sparse_dim - d - 1)}, 0);
  return coo(rest.index_select(1, chosen), values_of(self).index_select(0, chosen), sizes, p.coalesced);
}

Tensor narrow_copy(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  const int64_t d = wrap_dim(dim, self.dim()), n = self.size(d);
  const int64_t from = start < 0 ? start + n : start;
  MICA_CHECK(length >= 0 && from >= 0 && from + length <= n,
             "Invalid range to narrow. range(start, start+length) must ", "be a subset of range(0, ", n, ").");
  const Tensor c = through_coo(self);
  const SparseParts& p = parts_of(c);
  DimVector sizes(self.sizes());
  sizes[d] = length;
  if (d >= p.sparse_dim)
    return coo(p.indices, values_of(c).narrow(d - p.sparse_dim + 1, from, length), sizes, p.coalesced);
  const Tensor row = p.indices.select(0, d);
  const Tensor kept = row.ge(Scalar(from)).logical_and(row.lt(Scalar(from + length))).nonzero().squeeze(1);
  const Tensor indices = p.indices.index_select(1, kept);
  indices.select(0, d).sub_(Scalar(from));
  return coo(indices, values_of(c).index_select(0, kept), sizes, p.coalesced);
}

Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  const int64_t d = wrap_dim(dim, self.dim()), n = self.size(d);
  MICA_CHECK(step == 1, "slices of a sparse tensor have step 1, but got ", step);
  const auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + n : v, 0, n); };
  const int64_t from = clamp(start.value_or(0)), to = std::max(from, clamp(end.value_or(n)));
  return sparse::narrow_copy(self, d, from, to - from);
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  const int64_t d = wrap_dim(dim, self.dim()), n = self.size(d);
  MICA_CHECK(index.dim() == 1 && !is_sparse(index), "index_select() argument index must be 1-D, but got size ",
             index.sizes());
  MICA_CHECK(is_integral(index.dtype()), "index_select() argument index must be of int32 or int64 type, but got ",
             index.dtype());
  const Tensor c = through_coo(self);
  const SparseParts& p = parts_of(c);
  DimVector sizes(self.sizes());
  sizes[d] = index.numel();
  Tensor wanted = index.to(DType::Int64);
  if (wanted.numel() > 0) {
    MICA_CHECK_KIND(wanted.ge(Scalar(-n)).logical_and(wanted.lt(Scalar(n))).all().item<bool>(), Index,
                    "index_select(): index contains values that are out of range for tensor of size ", self.sizes(),
                    " at dimension ", d);
    wanted = mica::where(wanted.lt(Scalar(0)), wanted.add(Scalar(n)), wanted);
  }
  if (d >= p.sparse_dim)
    return coo(p.indices, values_of(c).index_select(d - p.sparse_dim + 1, wanted), sizes, p.coalesced);
  // Pairs each place of the result with all elements of the row that it asks for: elements are sorted by row, then
  // taken in runs.
  const Tensor row = p.indices.select(0, d).contiguous();
  const Groups g = group_keys(row, n);
  const Tensor begins = mica::empty({n + 1}, row.options());
  MICA_LAYER_KERNEL(row.device(), sparse_compress)(begins.view_of(), row.index_select(0, g.order).view_of());
  const Tensor lengths = begins.narrow(0, 1, n).sub(begins.narrow(0, 0, n)).index_select(0, wanted);
  const Tensor place = mica::arange(Scalar(wanted.numel()), row.options()).repeat_interleave(lengths);
  const Tensor before = lengths.cumsum(0).sub(lengths);
  const Tensor within = mica::arange(Scalar(place.numel()), row.options()).sub(before.index_select(0, place));
  const Tensor source = g.order.index_select(0, begins.index_select(0, wanted.index_select(0, place)).add(within));
  const Tensor indices = p.indices.index_select(1, source);
  indices.select(0, d).copy_(place);
  return coo(indices, values_of(c).index_select(0, source), sizes, false);
}

Tensor cat(TensorList tensors, int64_t dim) {
  MICA_CHECK(!tensors.empty(), "torch.cat(): expected a non-empty list of Tensors");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& each = tensors[i];
    MICA_CHECK(is_sparse(each), "Concatenating sparse tensors, but a dense tensor was found at position ", i, ".");
    MICA_CHECK(is_coo(each), "Concatenating sparse tensors, but a tensor of layout ", each.layout(),
               " was found among them");
  }
  const Tensor& first = tensors[0];
  const SparseParts& p = sparse_parts(first);
  const int64_t d = wrap_dim(dim, first.dim());
  DimVector sizes(first.sizes());
  std::vector<Tensor> indices, values;
  int64_t total = 0;
  for (const Tensor& each : tensors) {
    const SparseParts& q = sparse_parts(each);
    MICA_CHECK(q.sparse_dim == p.sparse_dim && q.dense_dim == p.dense_dim, "All tensors must have the same sparse_dim ",
               "and dense_dim: ", p.sparse_dim, ", ", p.dense_dim, ", but tensor at position ", indices.size(), " has ",
               q.sparse_dim, ", ", q.dense_dim, ".");
    for (int64_t i = 0; i < first.dim(); ++i)
      MICA_CHECK(i == d || each.size(i) == first.size(i), "All tensors must have the same shape: ", first.sizes(),
                 " (except in the concatenating dimension), but found shape: ", each.sizes(), " at position ",
                 indices.size());
    Tensor place = q.indices;
    if (d < p.sparse_dim) {
      place = place.clone();
      place.select(0, d).add_(Scalar(total));
    }
    total += each.size(d);
    indices.push_back(place);
    values.push_back(values_of(each));
  }
  sizes[d] = total;
  if (d >= p.sparse_dim) {
    // Each tensor's dense slices are padded with zeros to the joined width.
    const int64_t dense = d - p.sparse_dim + 1;
    int64_t at = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t own = tensors[i].size(d);
      const auto blank = [&](int64_t width) {
        DimVector shape(values[i].sizes());
        shape[dense] = width;
        return mica::zeros(shape, values[i].options());
      };
      values[i] = mica::cat({blank(at), values[i], blank(total - at - own)}, dense);
      at += own;
    }
  }
  return coo(mica::cat(indices, 1), mica::cat(values, 0), sizes, false);
}

Tensor stack(TensorList tensors, int64_t dim) {
  std::vector<Tensor> list;
  for (const Tensor& each : tensors) list.push_back(sparse::unsqueeze(each, dim));
  return sparse::cat(list, dim < 0 ? dim + static_cast<int64_t>(list.empty() ? 0 : list[0].dim()) : dim);
}

std::vector<Tensor> unbind(const Tensor& self, int64_t dim) {
  std::vector<Tensor> result;
  for (int64_t i = 0; i < self.size(dim); ++i) result.push_back(sparse::select(self, dim, i));
  return result;
}

Tensor reshape(const Tensor& self, IntArrayRef shape) {
  DimVector sizes = infer_size(shape, self.numel());
  const Tensor c = through_coo(self);
  const SparseParts& p = parts_of(c);
  MICA_CHECK(p.dense_dim == 0,
             "reshape of a sparse tensor with dense dimensions is not supported: to_dense() it first");
  const Tensor keys = keys_of(p.indices.contiguous(), self.sizes());
  const Tensor indices = mica::empty({static_cast<int64_t>(sizes.size()), keys.numel()}, keys.options());
  const Tensor order = mica::arange(Scalar(keys.numel()), keys.options());
  if (keys.numel() > 0) MICA_LAYER_KERNEL(keys.device(), sparse_unflatten_keys)
  (indices.view_of(), keys.view_of(), order.view_of(), order.view_of(), sizes);
  return coo(indices, values_of(c), sizes, p.coalesced);
}

}  // namespace mica::layouts::sparse
