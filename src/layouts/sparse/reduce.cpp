// Sums, norms, softmax and diagonals of sparse tensors.
#include <algorithm>

#include "core/entry.h"
#include "core/geometry.h"
#include "layouts/sparse/parts.h"
#include "mica/generated/layouts/sparse.h"

namespace mica::composite {

using namespace layouts::sparse;  // NOLINT: the operations of sparse tensors

Tensor _sparse_sum(const Tensor& self, std::optional<DType> dtype) {
  require_sparse("_sparse_sum", self);
  return mica::sum(values_of(self), dtype);
}

Tensor _sparse_sum(const Tensor& self, IntArrayRef dim, std::optional<DType> dtype) {
  require_sparse("_sparse_sum", self);
  const Tensor c = is_coo(self) ? self : mica::_convert_layout(self, Layout::SparseCoo);
  const SparseParts& p = sparse_parts(c);
  std::vector<bool> gone(static_cast<size_t>(self.dim()));
  DimVector dense_dims;
  for (const int64_t each : dim) {
    const int64_t d = wrap_dim(each, self.dim());
    MICA_CHECK(!gone[static_cast<size_t>(d)], "dim ", d, " appears multiple times in the list of dims");
    gone[static_cast<size_t>(d)] = true;
    if (d >= p.sparse_dim) dense_dims.push_back(d - p.sparse_dim + 1);
  }
  const DType result =
      dtype.value_or(is_integral(self.dtype()) || self.dtype() == DType::Bool ? DType::Int64 : self.dtype());
  Tensor values = values_of(c);
  if (dense_dims.size()) {
    values = mica::sum(values, dense_dims.ref(), false, result);
  } else if (values.dtype() != result) {
    values = values.to(result);
  }
  DimVector sizes;
  std::vector<Tensor> rows;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (gone[static_cast<size_t>(d)]) continue;
    sizes.push_back(self.size(d));
    if (d < p.sparse_dim) rows.push_back(p.indices.select(0, d));
  }
  if (rows.empty()) return mica::sum(values, IntArrayRef{0}, false, result);
  const bool all_kept = static_cast<int64_t>(rows.size()) == p.sparse_dim;
  // Programs read the values of a sum, so each of its places is there once.
  return coo(mica::stack(rows), values, sizes, all_kept && p.coalesced).coalesce();
}

namespace {

// The group that each element belongs to when those that differ only in dimension `dim` belong together.
Groups groups_along(const Tensor& self, int64_t dim) {
  const SparseParts& p = parts_of(self);
  std::vector<Tensor> rows;
  DimVector sizes;
  for (int64_t d = 0; d < p.sparse_dim; ++d) {
    if (d == dim) continue;
    rows.push_back(p.indices.select(0, d));
    sizes.push_back(self.size(d));
  }
  const Tensor keys =
      rows.empty() ? mica::zeros({p.indices.size(1)}, p.indices.options()) : keys_of(mica::stack(rows), sizes);
  return group_keys(keys, rows.empty() ? 1 : product_of(sizes));
}

Tensor softmax_of(const Tensor& given, int64_t dim, std::optional<DType> dtype, bool logarithm) {
  require_coo("softmax", given);
  const Tensor self = (dtype ? given.to(*dtype) : given).coalesce();
  MICA_CHECK(is_floating(self.dtype()), "softmax: expected floating point values, but got ", self.dtype());
  const SparseParts& p = sparse_parts(self);
  const int64_t d = wrap_dim(dim, self.dim());
  const Tensor values = values_of(self);
  if (d >= p.sparse_dim) {
    const int64_t at = d - p.sparse_dim + 1;
    return with_values(self, logarithm ? values.log_softmax(at) : values.softmax(at));
  }
  const int64_t nnz = values.size(0);
  if (nnz == 0) return with_values(self, values.clone());
  const Groups g = groups_along(self, d);
  const Tensor group = group_numbers(g);
  DimVector shape(values.sizes());
  shape[0] = g.count;
  Tensor spread = group;
  for (int64_t i = 1; i < values.dim(); ++i) spread = spread.unsqueeze(-1);
  spread = spread.expand(values.sizes());
  const Tensor none = mica::zeros(shape, values.options());
  const Tensor greatest = none.scatter_reduce(0, spread, values.detach(), "amax", false);
  const Tensor centred = values.sub(greatest.index_select(0, group));
  const Tensor powers = centred.exp();
  const Tensor totals = none.index_add(0, group, powers).index_select(0, group);
  return with_values(self, logarithm ? centred.sub(totals.log()) : powers.div(totals));
}

}  // namespace

Tensor _sparse_softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return softmax_of(self, dim, dtype, false);
}
Tensor _sparse_log_softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return softmax_of(self, dim, dtype, true);
}

Tensor _spdiags(const Tensor& diagonals, const Tensor& offsets, IntArrayRef shape, std::optional<Layout> layout) {
  const Tensor table = diagonals.dim() == 1 ? diagonals.unsqueeze(0) : diagonals;
  const Tensor which = offsets.dim() == 0 ? offsets.unsqueeze(0) : offsets;
  MICA_CHECK(table.dim() == 2, "Diagonals must be vector or matrix, but it has size ", diagonals.sizes());
  MICA_CHECK(shape.size() == 2, "Output shape must be 2d, but got ", shape);
  MICA_CHECK(which.dim() == 1, "Offsets must be scalar or vector, but it has size ", offsets.sizes());
  MICA_CHECK(which.numel() == table.size(0), "Number of diagonals (", table.size(0), ") does not match the number of ",
             "offsets (", which.numel(), ")");
  MICA_CHECK(which.dtype() == DType::Int64, "Offset Tensor must have dtype Long but got ", which.dtype());
  const Layout wanted = layout.value_or(Layout::SparseCoo);
  MICA_CHECK(wanted == Layout::SparseCoo || wanted == Layout::SparseCsr || wanted == Layout::SparseCsc,
             "Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got ", wanted);
  MICA_CHECK(std::get<0>(mica::_unique2(which)).numel() == which.numel(), "Offset tensor contains duplicate values");
  const int64_t rows = shape[0], columns = shape[1];
  std::vector<Tensor> indices, values;
  const TensorOptions places = TensorOptions(DType::Int64).device(table.device());
  for (int64_t i = 0; i < which.numel(); ++i) {
    const int64_t offset = which.select(0, i).item<int64_t>();
    // Element j of a diagonal stands in column j.
    const int64_t first = std::max<int64_t>(offset, 0);
    const int64_t last = std::min({columns, rows + offset, table.size(1)});
    if (last <= first) continue;
    const Tensor column = mica::arange(Scalar(first), Scalar(last), places);
    indices.push_back(mica::stack({column.sub(Scalar(offset)), column}));
    values.push_back(table.select(0, i).narrow(0, first, last - first));
  }
  const Tensor result = indices.empty()
                            ? coo(mica::empty({2, 0}, places), mica::empty({0}, table.options()), shape, true)
                            : coo(mica::cat(indices, 1), mica::cat(values, 0), shape, false);
  return wanted == Layout::SparseCoo ? result : mica::_convert_layout(result, wanted);
}

}  // namespace mica::composite

namespace mica::layouts::sparse {

Tensor sum(const Tensor& self, std::optional<DType> dtype) { return mica::_sparse_sum(self, dtype); }

Tensor sum_dim(const Tensor& self, std::optional<IntArrayRef> dim, bool keepdim, std::optional<DType> dtype) {
  DimVector dims;
  if (dim && !dim->empty()) {
    dims = DimVector(*dim);
  } else {
    for (int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  }
  Tensor result = mica::_sparse_sum(self, dims, dtype);
  if (keepdim) {
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = wrap_dim(dims[i], self.dim());
    std::sort(dims.begin(), dims.end());
    for (const int64_t d : dims) result = result.unsqueeze(d);
  }
  // torch sums compressed rows into compressed results.
  return is_compressed(self) && is_sparse(result) && result.dim() == 2
             ? mica::_convert_layout(result, Layout::SparseCsr)
             : result;
}

Tensor norm(const Tensor& self, const Scalar& p) {
  return mica::norm(values_of(is_coo(self) ? self.coalesce() : self), p);
}

Tensor norm_dim(const Tensor& self, const std::optional<Scalar>& p, std::optional<IntArrayRef> dim, bool keepdim,
                std::optional<DType> dtype) {
  MICA_CHECK(!dim || dim->empty(),
             "norm_sparse currently only supports full reductions, but got dim=", dim.value_or(IntArrayRef()));
  MICA_CHECK(!keepdim, "norm_sparse currently does not support keepdim=True");
  const Tensor given = dtype ? self.to(*dtype) : self;
  return sparse::norm(given, p.value_or(Scalar(2)));
}

Tensor any(const Tensor& self) { return mica::any(values_of(is_coo(self) ? self.coalesce() : self)); }

Tensor dot(const Tensor& self, const Tensor& tensor) {
  MICA_CHECK(self.dim() == 1 && tensor.dim() == 1, "1D tensors expected, but got ", self.dim(), "D and ", tensor.dim(),
             "D tensors");
  return mica::_sparse_sum(mica::mul(self, tensor));
}

}  // namespace mica::layouts::sparse
