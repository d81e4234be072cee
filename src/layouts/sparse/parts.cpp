// Making sparse tensors and taking them apart.
#include "layouts/sparse/parts.h"

#include "core/allocate.h"
#include "core/geometry.h"
#include "mica/autograd.h"

namespace mica::layouts::sparse {

namespace {

// A storage without memory that is marked as moved: TensorImpl::follow_storage says what that means.
Storage no_storage(Device device) {
  Storage s = StorageImpl::allocate(0, device.is_meta() ? kCPU : device);
  s->resize(0);
  return s;
}

Tensor wrap(Layout layout, IntArrayRef size, SparseParts parts) {
  int64_t count = 1;
  for (const int64_t n : size)
    MICA_CHECK(!__builtin_mul_overflow(count, n, &count), "numel: integer multiplication overflow: a tensor of size ",
               size, " has more than 2^63 elements");
  const Tensor& values = parts.values;
  const DimVector strides(size.size(), 0);
  TensorImpl* impl = TensorImpl::create(Storage(), values.dtype(), values.device(), size, strides, 0);
  impl->storage = no_storage(values.device());
  impl->contiguous = false;
  impl->layout = layout;
  impl->bits |= tensor_bit::kSparse;
  if (inference_mode_enabled()) impl->bits |= tensor_bit::kInference;
  parts.checked_version = parts.indices.version() + (parts.compressed.defined() ? parts.compressed.version() : 0);
  impl->rare_facts().sparse = std::move(parts);
  impl->set_own_version(Ref<VersionCounter>::adopt(new VersionCounter(0)));
  return Tensor::adopt(impl);
}

}  // namespace

int64_t product_of(IntArrayRef sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes)
    MICA_CHECK(!__builtin_mul_overflow(n, size, &n), "the sparse dimensions ", sizes,
               " have more than 2^63 places, too many to number them");
  return n;
}

Tensor wrap_coo(const Tensor& indices, const Tensor& values, IntArrayRef size, bool coalesced) {
  SparseParts parts;
  parts.indices = alias_of(indices);
  parts.values = alias_of(values.resolve_conj().resolve_neg());
  parts.sparse_dim = indices.size(0);
  parts.dense_dim = values.dim() - 1;
  parts.coalesced = coalesced || indices.size(1) < 2;
  return wrap(Layout::SparseCoo, size, std::move(parts));
}

Tensor wrap_compressed(Layout layout, const Tensor& compressed, const Tensor& plain, const Tensor& values,
                       IntArrayRef size) {
  SparseParts parts;
  parts.compressed = alias_of(compressed);
  parts.indices = alias_of(plain);
  parts.values = alias_of(values.resolve_conj().resolve_neg());
  parts.sparse_dim = 2;
  parts.dense_dim = values.dim() - plain.dim() - (has_blocks(layout) ? 2 : 0);
  return wrap(layout, size, std::move(parts));
}

const SparseParts& parts_of(const Tensor& t) {
  SparseParts& p = *t.impl()->rare->sparse;
  const uint32_t version = p.indices.version() + (p.compressed.defined() ? p.compressed.version() : 0);
  if (version != p.checked_version) {
    if (is_coo(t)) {
      check_coo(p.indices, p.values, t.sizes(), p.coalesced);
    } else {
      check_compressed(t.layout(), p.compressed, p.indices, p.values, t.sizes());
    }
    p.checked_version = version;
  }
  return p;
}

const char* layout_word(Layout layout) {
  switch (layout) {
    case Layout::SparseCoo:
      return "Sparse";
    case Layout::SparseCsr:
      return "SparseCsr";
    case Layout::SparseCsc:
      return "SparseCsc";
    case Layout::SparseBsr:
      return "SparseBsr";
    case Layout::SparseBsc:
      return "SparseBsc";
    case Layout::Jagged:
      return "Jagged";
    default:
      return "Strided";
  }
}

void require_sparse(const char* op, const Tensor& t) {
  MICA_CHECK(is_sparse(t), op, " expected a sparse tensor, but got one of layout ", t.layout());
}

void require_coo(const char* op, const Tensor& t) {
  MICA_CHECK(is_coo(t), op, " expected sparse coordinate tensor layout but got ", layout_word(t.layout()));
}

Tensor with_values(const Tensor& t, const Tensor& values) {
  const SparseParts& p = sparse_parts(t);
  if (is_coo(t)) return coo(p.indices, values, t.sizes(), p.coalesced);
  return mica::_sparse_compressed_tensor_unsafe(p.compressed, p.indices, values, t.sizes(), t.layout());
}

Tensor with_indices_like(const Tensor& made, const Tensor& from) {
  if (!is_compressed(made) || !is_compressed(from)) return made;
  const DType wanted = sparse_parts(from).indices.dtype();
  const SparseParts& p = sparse_parts(made);
  if (p.indices.dtype() == wanted) return made;
  return mica::_sparse_compressed_tensor_unsafe(p.compressed.to(wanted), p.indices.to(wanted), values_of(made),
                                                made.sizes(), made.layout());
}

Tensor int64_indices(const Tensor& indices) { return indices.to(DType::Int64).contiguous(); }

Tensor keys_of(const Tensor& indices, IntArrayRef sizes) {
  product_of(sizes);
  const Tensor keys = mica::empty({indices.size(1)}, indices.options());
  if (keys.numel() > 0) MICA_LAYER_KERNEL(keys.device(), sparse_keys)(keys.view_of(), indices.view_of(), sizes);
  return keys;
}

Groups group_keys(const Tensor& keys, int64_t bound) {
  Groups g;
  const Tensor dense = keys.contiguous();
  g.order = mica::empty_like(dense);
  Tensor starts = mica::empty({keys.numel() + 1}, keys.options());
  MICA_LAYER_KERNEL(keys.device(), sparse_group_keys)
  (g.order.view_of(), starts.view_of(), dense.view_of(), bound, &g.count);
  g.starts = starts.narrow(0, 0, g.count + 1);
  return g;
}

Tensor group_numbers(const Groups& g) {
  const Tensor in_order = mica::empty_like(g.order);
  if (in_order.numel() > 0)
    MICA_LAYER_KERNEL(in_order.device(), sparse_expand_rows)(in_order.view_of(), g.starts.view_of());
  Tensor numbers = mica::empty_like(g.order);
  numbers.index_copy_(0, g.order, in_order);
  return numbers;
}

static Tensor row_numbers(const Tensor& compressed, int64_t nnz) {
  const Tensor rows = mica::empty({nnz}, compressed.options());
  if (nnz > 0) MICA_LAYER_KERNEL(rows.device(), sparse_expand_rows)(rows.view_of(), compressed.view_of());
  return rows;
}

Places places_of(const Tensor& matrix) {
  const SparseParts& p = parts_of(matrix);
  if (is_coo(matrix)) return {p.indices.select(0, 0).contiguous(), p.indices.select(0, 1).contiguous()};
  const Tensor compressed = row_numbers(int64_indices(p.compressed), p.indices.numel()),
               plain = int64_indices(p.indices);
  return compresses_rows(matrix.layout()) ? Places{compressed, plain} : Places{plain, compressed};
}

Rows rows_of(const Tensor& matrix, bool transposed) {
  NoGradGuard below;
  const SparseParts& p = parts_of(matrix);
  const int64_t rows = matrix.size(transposed ? 1 : 0);
  if (is_compressed(matrix) && compresses_rows(matrix.layout()) != transposed)
    return {int64_indices(p.compressed), int64_indices(p.indices), p.values.contiguous()};
  Places places = places_of(matrix);
  if (transposed) std::swap(places.rows, places.columns);
  Rows result;
  result.begins = mica::empty({rows + 1}, places.rows.options());
  Tensor sorted = places.rows, values = p.values;
  if (!is_coo(matrix) || transposed || !p.coalesced) {
    const Groups g = group_keys(places.rows, rows);
    sorted = sorted.index_select(0, g.order);
    places.columns = places.columns.index_select(0, g.order);
    values = values.index_select(0, g.order);
  }
  MICA_LAYER_KERNEL(result.begins.device(), sparse_compress)(result.begins.view_of(), sorted.view_of());
  result.columns = places.columns;
  result.values = values.contiguous();
  return result;
}

Tensor compressed_to_coo(const Tensor& t) {
  const SparseParts& p = parts_of(t);
  const Layout layout = t.layout();
  const int64_t batch_dims = p.compressed.dim() - 1, nnz = p.indices.size(-1);
  int64_t batches = 1;
  for (int64_t d = 0; d < batch_dims; ++d) batches *= t.size(d);
  const Tensor begins = int64_indices(p.compressed).reshape({batches, p.compressed.size(-1)});
  const Tensor plain = int64_indices(p.indices).reshape({-1});
  std::vector<Tensor> compressed;
  for (int64_t b = 0; b < batches; ++b) compressed.push_back(row_numbers(begins.select(0, b), nnz));
  Tensor lines = batches > 0 ? mica::cat(compressed) : mica::empty({0}, plain.options());
  Tensor rows = compresses_rows(layout) ? lines : plain, columns = compresses_rows(layout) ? plain : lines;
  std::vector<Tensor> index;
  // The batch's own indices, slowest first.
  Tensor batch_number = mica::arange(Scalar(batches), plain.options()).repeat_interleave(nnz);
  int64_t inner = batches;
  for (int64_t d = 0; d < batch_dims; ++d) {
    inner /= std::max<int64_t>(t.size(d), 1);
    index.push_back(batch_number.floor_divide(Scalar(std::max<int64_t>(inner, 1)))
                        .remainder(Scalar(std::max<int64_t>(t.size(d), 1))));
  }
  Tensor values = values_of(t);
  values = values.flatten(0, batch_dims);  // [batches * nnz, *block, *dense]
  if (has_blocks(layout)) {
    const int64_t height = values.size(1), width = values.size(2), each = height * width, n = rows.numel();
    const Tensor within = mica::arange(Scalar(each), plain.options());
    const auto spread = [&](const Tensor& base, int64_t step, const Tensor& offset) {
      return (base.mul(Scalar(step)).unsqueeze(1) + offset.unsqueeze(0)).reshape({n * each});
    };
    rows = spread(rows, height, within.floor_divide(Scalar(std::max<int64_t>(width, 1))));
    columns = spread(columns, width, within.remainder(Scalar(std::max<int64_t>(width, 1))));
    for (Tensor& i : index) i = i.repeat_interleave(each);
    DimVector flat(values.sizes());
    flat.erase(1);
    flat.erase(1);
    flat[0] = n * each;
    values = values.reshape(flat);
  }
  index.push_back(rows);
  index.push_back(columns);
  const bool sorted = compresses_rows(layout) && !has_blocks(layout);
  return coo(mica::stack(index), values, t.sizes(), sorted);
}

}  // namespace mica::layouts::sparse

namespace mica::composite {

using namespace layouts::sparse;  // NOLINT: the operations of sparse tensors

Tensor _sparse_coo_tensor_unsafe(const Tensor& indices, const Tensor& values, IntArrayRef size,
                                 std::optional<bool> is_coalesced) {
  return wrap_coo(indices, values, size, is_coalesced.value_or(false));
}

Tensor _sparse_compressed_tensor_unsafe(const Tensor& compressed_indices, const Tensor& plain_indices,
                                        const Tensor& values, IntArrayRef size, Layout layout) {
  return wrap_compressed(layout, compressed_indices, plain_indices, values, size);
}

bool is_coalesced(const Tensor& self) {
  require_coo("is_coalesced", self);
  return sparse_parts(self).coalesced;
}

int64_t sparse_dim(const Tensor& self) { return is_sparse(self) ? sparse_parts(self).sparse_dim : 0; }
int64_t dense_dim(const Tensor& self) { return is_sparse(self) ? sparse_parts(self).dense_dim : self.dim(); }

int64_t _nnz(const Tensor& self) {
  require_sparse("_nnz", self);
  return sparse_parts(self).indices.size(-1);
}

Tensor _indices(const Tensor& self) {
  require_coo("_indices", self);
  return sparse_parts(self).indices.detach();
}

Tensor _values(const Tensor& self) {
  require_sparse("_values", self);
  return sparse_parts(self).values.detach();
}

Tensor _sparse_values(const Tensor& self) {
  require_sparse("values", self);
  return alias_of(sparse_parts(self).values);
}

static void require_coalesced(const Tensor& self, const char* what) {
  MICA_CHECK(sparse_parts(self).coalesced, "Cannot get ", what,
             " on an uncoalesced tensor, please call .coalesce() first");
}

Tensor _coalesced_indices(const Tensor& self) {
  require_coo("indices", self);
  require_coalesced(self, "indices");
  return sparse_parts(self).indices.detach();
}

Tensor _checked_values(const Tensor& self) {
  MICA_CHECK(is_sparse(self), "values expected sparse tensor layout but got ", layout_word(self.layout()));
  if (is_coo(self)) require_coalesced(self, "values");
  return mica::_sparse_values(self);
}

static Tensor compressed_part(const char* name, const Tensor& self, bool of_rows, bool is_compressed) {
  const bool fits = layouts::sparse::is_compressed(self) && compresses_rows(self.layout()) == of_rows;
  MICA_CHECK(fits, name, " expected sparse ", of_rows ? "row" : "column", " compressed tensor layout but got ",
             layout_word(self.layout()));
  const SparseParts& p = sparse_parts(self);
  return (is_compressed ? p.compressed : p.indices).detach();
}

Tensor crow_indices(const Tensor& self) { return compressed_part("crow_indices", self, true, true); }
Tensor col_indices(const Tensor& self) { return compressed_part("col_indices", self, true, false); }
Tensor ccol_indices(const Tensor& self) { return compressed_part("ccol_indices", self, false, true); }
Tensor row_indices(const Tensor& self) { return compressed_part("row_indices", self, false, false); }

// ---- coalescing

Tensor coalesce(const Tensor& self) {
  require_coo("coalesce", self);
  return sparse_parts(self).coalesced ? self : mica::_coalesce(self);
}

Tensor _coalesce(const Tensor& self) {
  require_coo("_coalesce", self);
  const SparseParts& p = parts_of(self);
  const int64_t nnz = p.indices.size(1);
  const IntArrayRef sizes = self.sizes().slice(0, static_cast<size_t>(p.sparse_dim));
  const Tensor keys = keys_of(p.indices, sizes);
  const Groups g = group_keys(keys, product_of(sizes));
  DimVector value_sizes(p.values.sizes());
  value_sizes[0] = g.count;
  const Tensor values = mica::empty(value_sizes, p.values.options());
  const Tensor indices = mica::empty({p.sparse_dim, g.count}, p.indices.options());
  if (g.count > 0) {
    if (values.numel() > 0) MICA_LAYER_KERNEL(self.device(), sparse_sum_groups)
    (values.view({g.count, -1}).view_of(), p.values.contiguous().view({nnz, -1}).view_of(), g.order.view_of(),
     g.starts.view_of());
    MICA_LAYER_KERNEL(self.device(), sparse_unflatten_keys)
    (indices.view_of(), keys.view_of(), g.order.view_of(), g.starts.view_of(), sizes);
  }
  return wrap_coo(indices, values, self.sizes(), true);
}

}  // namespace mica::composite

namespace mica::inplace {

void _coalesced_(const Tensor& self, bool coalesced) {
  layouts::sparse::require_coo("_coalesced_", self);
  self.impl()->rare->sparse->coalesced = coalesced;
}

static void resize(const Tensor& self, IntArrayRef size, int64_t sparse_dim, int64_t dense_dim, bool clear) {
  using namespace layouts::sparse;  // NOLINT: as above
  require_coo("sparse_resize_", self);
  MICA_CHECK(sparse_dim + dense_dim == static_cast<int64_t>(size.size()), "number of dimensions must be sparse_dim (",
             sparse_dim, ") + dense_dim (", dense_dim, "), but got ", size.size());
  SparseParts& p = *self.impl()->rare->sparse;
  DimVector dense(size.slice(static_cast<size_t>(sparse_dim), static_cast<size_t>(dense_dim)));
  const int64_t nnz = clear ? 0 : p.indices.size(1);
  if (nnz > 0) {
    MICA_CHECK(sparse_dim == p.sparse_dim && dense_dim == p.dense_dim,
               "changing the number of sparse or dense dimensions on a non-empty sparse tensor is not supported.");
    for (size_t d = 0; d < size.size(); ++d)
      MICA_CHECK(size[d] >= self.sizes()[d], "shrinking the size of dimensions (from ", self.sizes(), " to ", size,
                 ") on a non-empty sparse tensor is not supported.");
  }
  DimVector value_sizes{nnz};
  for (const int64_t n : dense) value_sizes.push_back(n);
  Tensor values = mica::zeros(value_sizes, p.values.options());
  Tensor indices = nnz ? p.indices : mica::empty({sparse_dim, 0}, p.indices.options());
  if (nnz) {
    Tensor corner = values;
    for (int64_t d = 0; d < dense_dim; ++d) corner = corner.narrow(d + 1, 0, p.values.size(d + 1));
    corner.copy_(p.values);
  }
  const Tensor made = wrap_coo(indices, values, size, p.coalesced);
  const DimVector strides(size.size(), 0);
  self.impl()->rare->sparse = made.impl()->rare->sparse;
  self.impl()->set_geometry(size, strides, 0);
  self.impl()->contiguous = false;
}

void sparse_resize_(const Tensor& self, IntArrayRef size, int64_t sparse_dim, int64_t dense_dim) {
  resize(self, size, sparse_dim, dense_dim, false);
}
void sparse_resize_and_clear_(const Tensor& self, IntArrayRef size, int64_t sparse_dim, int64_t dense_dim) {
  resize(self, size, sparse_dim, dense_dim, true);
}

}  // namespace mica::inplace
