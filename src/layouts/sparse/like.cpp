// Sparse tensors like others: zeros_like and its kin, and operations that fill values in place.
#include "layouts/sparse/parts.h"
#include "mica/autograd.h"
#include "mica/generated/layouts/sparse.h"

namespace mica::layouts::sparse {

namespace {

TensorOptions own_options(const Tensor& self, const TensorOptions& options) {
  return TensorOptions(options.dtype_opt().value_or(self.dtype())).device(options.device_opt().value_or(self.device()));
}

// Only zeros_like can change from a compressed layout to another: it has no elements to keep.
void check_layout_kept(const Tensor& self, Layout wanted) {
  MICA_CHECK(is_coo(self) || wanted == self.layout(),
             "empty_like with different sparse layout is not supported (self is ", layout_word(self.layout()),
             " but you requested ", layout_word(wanted), ")");
}

// The sizes of one block of a blocked tensor.
std::pair<int64_t, int64_t> block_of(const Tensor& t) {
  const SparseParts& p = sparse_parts(t);
  const int64_t batch = p.compressed.dim() - 1;
  return {p.values.size(batch + 1), p.values.size(batch + 2)};
}

// A compressed tensor without elements that has the sizes of `self` and another layout.
Tensor empty_compressed(const Tensor& self, Layout layout, const TensorOptions& own, bool from_zeros) {
  const SparseParts& p = sparse_parts(self);
  const bool blocked = !is_coo(self) && has_blocks(self.layout());
  if (has_blocks(layout) && !blocked)
    fail(from_zeros ? "sparse_compressed_tensor_with_dims: blocksize needs to be a tuple of size 2, but got 0"
                    : mica::cat("empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got ",
                                layout_word(layout)));
  MICA_CHECK(has_blocks(layout) || !blocked,
             "sparse_compressed_tensor_with_dims: blocksize cannot be specified for non-block layout ",
             layout_word(layout));
  const int64_t batch = is_coo(self) ? p.sparse_dim - 2 : p.compressed.dim() - 1;
  MICA_CHECK(batch >= 0, "a tensor of layout ", layout_word(layout), " has two sparse dimensions at least, but got ",
             p.sparse_dim);
  const auto [height, width] = blocked ? block_of(self) : std::pair<int64_t, int64_t>{1, 1};
  DimVector lead(self.sizes().slice(0, static_cast<size_t>(batch))), starts = lead, places = lead, values = lead;
  const bool rows = compresses_rows(layout);
  starts.push_back((rows ? self.size(batch) / height : self.size(batch + 1) / width) + 1);
  places.push_back(0);
  values.push_back(0);
  if (blocked) {
    values.push_back(height);
    values.push_back(width);
  }
  for (int64_t d = batch + 2; d < self.dim(); ++d) values.push_back(self.size(d));
  const TensorOptions index = p.indices.options().device(own.device());
  return wrap_compressed(layout, mica::zeros(starts, index), mica::empty(places, index), mica::empty(values, own),
                         self.sizes());
}

}  // namespace

Tensor zeros_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  const TensorOptions own = own_options(self, options);
  const Layout layout = options.layout_opt().value_or(self.layout());
  if (layout == Layout::Strided) {
    check_layout_kept(self, layout);
    const Tensor made = mica::zeros(self.sizes(), own);
    return memory_format && *memory_format != MemoryFormat::Preserve ? made.contiguous(*memory_format) : made;
  }
  MICA_CHECK(!memory_format || *memory_format == MemoryFormat::Preserve || *memory_format == MemoryFormat::Contiguous,
             "memory format option is only supported by strided tensors");
  NoGradGuard below;
  if (layout != Layout::SparseCoo) return empty_compressed(self, layout, own, true);
  const SparseParts& p = sparse_parts(self);
  const int64_t dense = p.dense_dim, sparse = self.dim() - dense;
  DimVector sizes(1, 0);
  for (int64_t d = sparse; d < self.dim(); ++d) sizes.push_back(self.size(d));
  const TensorOptions places = p.indices.options().dtype(DType::Int64).device(own.device());
  return wrap_coo(mica::empty({sparse, 0}, places), mica::empty(sizes, own), self.sizes(), true);
}

// Compressed layouts keep their indices, with room for the same number of elements.
Tensor empty_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  const Layout layout = options.layout_opt().value_or(self.layout());
  MICA_CHECK(!memory_format || layout == Layout::Strided, "memory format option is only supported by strided tensors");
  check_layout_kept(self, layout);
  const TensorOptions own = own_options(self, options);
  NoGradGuard below;
  if (is_coo(self) && layout != Layout::SparseCoo && layout != Layout::Strided)
    return empty_compressed(self, layout, own, false);
  if (is_coo(self)) return sparse::zeros_like(self, options, memory_format);
  const Tensor a = self.detach().to(own.device());
  return with_values(a, mica::empty(sparse_parts(a).values.sizes(), own));
}

Tensor full_like(const Tensor& self, const Scalar& fill_value, const TensorOptions& options,
                 std::optional<MemoryFormat> memory_format) {
  const Layout layout = options.layout_opt().value_or(self.layout());
  const TensorOptions own = own_options(self, options);
  if (is_coo(self) && layout == Layout::Strided) return mica::full(self.sizes(), fill_value, own);
  if (is_coo(self) && layout == Layout::SparseCoo) {
    // The elements that exist; torch offers this for compressed layouts only.
    const Tensor a = self.coalesce().detach().to(own.device());
    return with_values(a, mica::full(sparse_parts(a).values.sizes(), fill_value, own));
  }
  const Tensor made = sparse::empty_like(self, options, memory_format);
  sparse_parts(made).values.fill_(fill_value);
  return made;
}

Tensor ones_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  return sparse::full_like(self, 1, options, memory_format);
}

void normal_(const Tensor& self, double mean, double std, const std::optional<Generator>& generator) {
  MICA_CHECK_KIND(
      is_compressed(self), NotImplemented,
      "Could not run 'aten::normal_' with arguments from the 'SparseCPU' backend. This could be because the "
      "operator doesn't exist for this backend: to_dense() gives a tensor that has it");
  values_of(self).normal_(mean, std, generator);
}

}  // namespace mica::layouts::sparse
