// Conversions between layouts: strided, COO and the compressed ones.
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "layouts/sparse/parts.h"
#include "mica/autograd.h"

namespace mica::layouts::sparse {

namespace {

// The slices along the first `sparse_dim` dimensions that differ from zero.
Tensor coo_from_dense(const Tensor& self, int64_t sparse_dim) {
  const Tensor dense = self.contiguous();
  const int64_t dims = self.dim();
  if (sparse_dim == dims && dims > 0 && !self.is_meta()) {
    // Devices other than the CPU take many small chunks.
    const int64_t chunks = self.is_cpu() ? std::clamp<int64_t>(self.numel() / 65536, 1, 256)
                                         : std::clamp<int64_t>(self.numel() / 16384, 1, int64_t{1} << 20);
    const TensorOptions counts = TensorOptions(DType::Int64).device(self.device());
    const Tensor offsets = mica::empty({chunks + 1}, counts);
    MICA_KERNEL(self.device(), nonzero_offsets)(offsets.view_of(), dense.view_of());
    const int64_t nnz = offsets.select(0, chunks).item<int64_t>();
    const Tensor indices = mica::empty({dims, nnz}, counts), values = mica::empty({nnz}, self.options());
    if (nnz > 0) MICA_LAYER_KERNEL(self.device(), sparse_pack)
    (indices.view_of(), values.view_of(), dense.view_of(), offsets.view_of());
    return wrap_coo(indices, values, self.sizes(), true);
  }
  Tensor mask = dense.ne(0);
  if (sparse_dim < dims) mask = mask.flatten(sparse_dim, -1).any(-1);
  if (sparse_dim == 0) {
    // One slice, the whole tensor, or none.
    const int64_t nnz = mask.any().item<bool>() ? 1 : 0;
    const Tensor indices = mica::empty({0, nnz}, TensorOptions(DType::Int64).device(self.device()));
    return wrap_coo(indices, dense.unsqueeze(0).narrow(0, 0, nnz), self.sizes(), true);
  }
  const Tensor indices = mask.nonzero().t().contiguous();
  const Tensor keys = keys_of(indices, self.sizes().slice(0, static_cast<size_t>(sparse_dim)));
  const Tensor values = dense.flatten(0, sparse_dim - 1).index_select(0, keys);
  return wrap_coo(indices, values, self.sizes(), true);
}

// A dense tensor as compressed blocks of height x width. All batches hold the same number of blocks.
Tensor compressed_from_dense(const Tensor& self, Layout layout, int64_t height, int64_t width, int64_t dense_dim) {
  const int64_t batch = self.dim() - 2 - dense_dim;
  const int64_t nrows = self.size(batch), ncolumns = self.size(batch + 1);
  MICA_CHECK(nrows % height == 0 && ncolumns % width == 0, "tensor sparse size (", nrows, ",", ncolumns,
             ") must be divisible by given blocksize (", height, ",", width, ")");
  const bool rows = compresses_rows(layout), blocks = has_blocks(layout);
  Tensor cut = self.contiguous();
  if (blocks) {
    DimVector sizes;
    for (int64_t d = 0; d < batch; ++d) sizes.push_back(self.size(d));
    for (const int64_t n : {nrows / height, height, ncolumns / width, width}) sizes.push_back(n);
    for (int64_t d = batch + 2; d < self.dim(); ++d) sizes.push_back(self.size(d));
    cut = cut.view(sizes).transpose(batch + 1, batch + 2);
  }
  Tensor mask = cut.ne(0);
  if (mask.dim() > batch + 2) mask = mask.flatten(batch + 2, -1).any(-1);
  if (!rows) {
    mask = mask.transpose(-1, -2);
    cut = cut.transpose(batch, batch + 1);
  }
  int64_t batches = 1;
  for (int64_t d = 0; d < batch; ++d) batches *= self.size(d);
  const int64_t lines = mask.size(-2), across = mask.size(-1);
  const Tensor flat = mask.reshape({batches, lines * across});
  const Tensor counts = flat.sum(IntArrayRef{1});
  int64_t nnz = 0;
  if (batches > 0) {
    nnz = counts.select(0, 0).item<int64_t>();
    MICA_CHECK(counts.eq(Scalar(nnz)).all().item<bool>(), "Expect the same number of specified elements per batch.");
  }
  const Tensor at = flat.nonzero();  // [batches * nnz, 2], by batch, then by line
  const Tensor place = at.select(1, 1).contiguous();
  const Tensor plain = place.remainder(Scalar(std::max<int64_t>(across, 1)));
  const Tensor line = place.floor_divide(Scalar(std::max<int64_t>(across, 1)));
  const Tensor begins = mica::empty({batches, lines + 1}, place.options());
  for (int64_t b = 0; b < batches; ++b) MICA_LAYER_KERNEL(self.device(), sparse_compress)
  (begins.select(0, b).view_of(), line.narrow(0, b * nnz, nnz).contiguous().view_of());
  const Tensor keys = at.select(1, 0).mul(Scalar(lines * across)).add(place);
  Tensor values = cut.flatten(0, batch + 1).index_select(0, keys);
  DimVector outer;
  for (int64_t d = 0; d < batch; ++d) outer.push_back(self.size(d));
  const auto shaped = [&](const Tensor& t, int64_t last) {
    DimVector sizes(outer);
    sizes.push_back(last);
    for (int64_t d = 1; d < t.dim(); ++d) sizes.push_back(t.size(d));
    return t.reshape(sizes);
  };
  return wrap_compressed(layout, shaped(begins.reshape({-1}), lines + 1), shaped(plain, nnz), shaped(values, nnz),
                         self.sizes());
}

// A COO matrix, with dense dimensions or without, as compressed rows or columns.
Tensor compressed_from_coo(const Tensor& self, Layout layout) {
  const Tensor ordered = compresses_rows(layout) ? self.coalesce() : self.transpose(0, 1).coalesce();
  const SparseParts& p = parts_of(ordered);
  const Tensor begins = mica::empty({ordered.size(0) + 1}, p.indices.options());
  MICA_LAYER_KERNEL(self.device(), sparse_compress)
  (begins.view_of(), p.indices.select(0, 0).contiguous().view_of());
  return wrap_compressed(layout, begins, p.indices.select(0, 1).contiguous(), p.values, self.sizes());
}

// Where each line begins among elements that are sorted by line; `line_of_each` says which line each one is in.
Tensor line_begins(const Tensor& line_of_each, int64_t lines) {
  const Tensor begins = mica::empty({lines + 1}, line_of_each.options());
  MICA_LAYER_KERNEL(line_of_each.device(), sparse_compress)(begins.view_of(), line_of_each.contiguous().view_of());
  return begins;
}

// A COO matrix, with or without dense dimensions, as blocks of height x width: those that hold one of its elements.
Tensor blocks_from_coo(const Tensor& given, Layout layout, int64_t height, int64_t width) {
  const int64_t nrows = given.size(0), ncolumns = given.size(1);
  MICA_CHECK(nrows % height == 0 && ncolumns % width == 0, "tensor sparse size (", nrows, ",", ncolumns,
             ") must be divisible by given blocksize (", height, ",", width, ")");
  const Tensor self = given.coalesce();
  const SparseParts& p = parts_of(self);
  const Tensor row = p.indices.select(0, 0), column = p.indices.select(0, 1);
  const Tensor block_row = row.floor_divide(Scalar(height)), block_column = column.floor_divide(Scalar(width));
  const bool rows = compresses_rows(layout);
  const int64_t lines = rows ? nrows / height : ncolumns / width, across = rows ? ncolumns / width : nrows / height;
  const Tensor keys =
      rows ? block_row.mul(Scalar(across)).add(block_column) : block_column.mul(Scalar(across)).add(block_row);
  const Groups groups = group_keys(keys, std::max<int64_t>(lines * across, 1));
  const Tensor firsts = groups.order.index_select(0, groups.starts.narrow(0, 0, groups.count));
  const Tensor found = keys.index_select(0, firsts),
               divisor = mica::full_like(found, Scalar(std::max<int64_t>(across, 1)));
  const Tensor place = group_numbers(groups)
                           .mul(Scalar(height * width))
                           .add(row.remainder(Scalar(height)).mul(Scalar(width)))
                           .add(column.remainder(Scalar(width)));
  DimVector sizes{groups.count * height * width};
  for (int64_t d = 1; d < p.values.dim(); ++d) sizes.push_back(p.values.size(d));
  Tensor values = mica::zeros(sizes, p.values.options()).index_copy(0, place, p.values);
  DimVector shape{groups.count, height, width};
  for (int64_t d = 1; d < p.values.dim(); ++d) shape.push_back(p.values.size(d));
  return wrap_compressed(layout, line_begins(found.floor_divide(divisor), lines), found.remainder(divisor),
                         values.view(shape), given.sizes());
}

// Compressed rows of blocks as compressed columns of the same blocks, or the other way round.
Tensor blocks_turned(const Tensor& self, Layout layout) {
  const SparseParts& p = parts_of(self);
  const Tensor begins = int64_indices(p.compressed), across = int64_indices(p.indices);
  const int64_t lines = begins.size(0) - 1;
  const Tensor line = mica::repeat_interleave(begins.diff());
  const Tensor order = across.mul(Scalar(std::max<int64_t>(lines, 1))).add(line).argsort();
  const int64_t size = self.size(compresses_rows(layout) ? 0 : 1);
  const DimVector block{p.values.size(1), p.values.size(2)};
  return wrap_compressed(layout,
                         line_begins(across.index_select(0, order), size / block[compresses_rows(layout) ? 0 : 1]),
                         line.index_select(0, order), p.values.index_select(0, order), self.sizes());
}

Tensor dense_from_coo(const Tensor& self) {
  const SparseParts& p = parts_of(self);
  Tensor result = mica::zeros(self.sizes(), self.options());
  if (p.values.numel() == 0) return result;
  const IntArrayRef sizes = self.sizes().slice(0, static_cast<size_t>(p.sparse_dim));
  const int64_t places = product_of(sizes);
  const DType dtype = self.dtype();
  // Sums of 16-bit floats are rounded once. Rounded after each of many equal terms, a sum would stop growing.
  if (is_float8(dtype) || (is_narrow(dtype) && !p.coalesced)) return dense_from_coo(self.to(DType::Float32)).to(dtype);
  if (dtype == DType::Complex32) return dense_from_coo(self.to(DType::Complex64)).to(dtype);
  MICA_LAYER_KERNEL(self.device(), sparse_add_at_keys)
  (result.view({places, -1}).view_of(), keys_of(p.indices, sizes).view_of(),
   p.values.contiguous().view({p.indices.size(1), -1}).view_of(), 1);
  return result;
}

Tensor dense_from_compressed(const Tensor& self) {
  const SparseParts& p = parts_of(self);
  const bool plain_matrix = self.dim() == 2 && !has_blocks(self.layout());
  if (!plain_matrix) return dense_from_coo(compressed_to_coo(self));
  const bool rows = compresses_rows(self.layout());
  const Tensor made = mica::empty({self.size(rows ? 0 : 1), self.size(rows ? 1 : 0)}, self.options());
  if (made.numel() > 0) MICA_LAYER_KERNEL(self.device(), sparse_scatter_rows)
  (made.view_of(), int64_indices(p.compressed).view_of(), int64_indices(p.indices).view_of(),
   p.values.contiguous().view_of());
  return rows ? made : made.t().contiguous();
}

DimVector block_of(const Tensor& t) {
  const Tensor& values = sparse_parts(t).values;
  const int64_t batch = sparse_parts(t).compressed.dim() - 1;
  return {values.size(batch + 1), values.size(batch + 2)};
}

}  // namespace
}  // namespace mica::layouts::sparse

namespace mica::composite {

using namespace layouts::sparse;  // NOLINT: the operations of sparse tensors

Tensor to_dense(const Tensor& self, std::optional<DType> dtype, std::optional<bool> masked_grad) {
  if (is_sparse(self)) return mica::_to_dense(self, dtype, masked_grad);
  return dtype ? self.to(*dtype) : self;
}

Tensor _to_dense(const Tensor& self, std::optional<DType> dtype, std::optional<bool>) {
  MICA_CHECK(!dtype || *dtype == self.dtype() || can_cast(self.dtype(), *dtype), "to_dense: cannot convert ",
             self.dtype(), " to ", *dtype);
  const Tensor dense = is_coo(self) ? dense_from_coo(self) : dense_from_compressed(self);
  return dtype ? dense.to(*dtype) : dense;
}

Tensor to_sparse(const Tensor& self, int64_t sparse_dim) {
  if (is_coo(self)) {
    MICA_CHECK(sparse_dim == sparse_parts(self).sparse_dim, "to_sparse: conversion from Sparse to Sparse with ",
               "sparse_dim argument !=self.sparse_dim() is not supported");
    return self;
  }
  MICA_CHECK(!is_sparse(self) || sparse_dim == 2, "to_sparse: conversion from ", self.layout(),
             " to torch.sparse_coo needs sparse_dim=2, but got ", sparse_dim);
  if (is_compressed(self)) return mica::_convert_layout(self, Layout::SparseCoo);
  const int64_t dims = self.dim();
  MICA_CHECK(dims == 0 ? sparse_dim == 0 : sparse_dim > 0 && sparse_dim <= dims, "to_sparse: sparse_dim argument ",
             "must be in ", dims > 0 ? "[1," : "[0,", dims, "] range, but ", sparse_dim, " is given");
  return mica::_to_sparse_dim(self, sparse_dim);
}

Tensor _to_sparse_dim(const Tensor& self, int64_t sparse_dim) { return coo_from_dense(self, sparse_dim); }

// Allows the conversions that torch has: a blocksize goes with blocks and never changes, and sparse tensors keep their
// dense dimensions.
static void check_conversion(const Tensor& self, Layout wanted, const std::optional<IntArrayRef>& blocksize,
                             const std::optional<int64_t>& dense_dim) {
  const bool blocked = is_sparse(self) && has_blocks(self.layout());
  const char* op = wanted == self.layout() ? "to_sparse"
                   : is_coo(self)          ? "sparse_coo_to_sparse"
                   : is_sparse(self)       ? "sparse_compressed_to_sparse"
                                           : "dense_to_sparse";
  const auto refuse = [&](const std::string& why) {
    fail(mica::cat(op, ": conversion from ", layout_word(self.layout()), " to ", layout_word(wanted), " ", why,
                   " is not supported"));
  };
  if (wanted == Layout::Jagged) refuse("from sparse layouts");
  if (blocksize && !has_blocks(wanted)) refuse("with blocksize argument given");
  if (!blocksize && has_blocks(wanted) && !blocked) refuse("without blocksize argument given");
  if (is_sparse(self) && dense_dim) refuse("with dense_dim argument given");
  if (is_compressed(self) && !blocked && has_blocks(wanted) && sparse_parts(self).compressed.dim() > 1)
    fail(mica::cat(op, wanted == Layout::SparseBsr ? "_bsr" : "_bsc", ": conversion from ", layout_word(self.layout()),
                   " to ", layout_word(wanted), " for batched inputs is not supported"));
  const char* name = wanted == Layout::SparseCsr ? "csr" : wanted == Layout::SparseCsc ? "csc" : "block";
  MICA_CHECK(!is_coo(self) || wanted == Layout::Strided || is_coo(self) == (wanted == Layout::SparseCoo) ||
                 sparse_parts(self).sparse_dim == 2,
             "coo_to_sparse_", name, ": conversion from Sparse to ", layout_word(wanted),
             " for input tensors with sparse_dim()!=2 is not supported");
}

Tensor to_sparse(const Tensor& self, std::optional<Layout> layout, std::optional<IntArrayRef> blocksize,
                 std::optional<int64_t> dense_dim) {
  const Layout wanted = layout.value_or(Layout::SparseCoo);
  check_conversion(self, wanted, blocksize, dense_dim);
  if (wanted == self.layout() && !(has_blocks(wanted) && blocksize && block_of(self).ref() != *blocksize)) return self;
  const Tensor made = mica::_convert_layout(self, wanted, blocksize, dense_dim);
  return is_coo(made) ? made.coalesce() : made;
}

Tensor to_sparse_coo(const Tensor& self) { return composite::to_sparse(self, Layout::SparseCoo, {}, {}); }
Tensor to_sparse_csr(const Tensor& self, std::optional<int64_t> dense_dim) {
  return composite::to_sparse(self, Layout::SparseCsr, {}, dense_dim);
}
Tensor to_sparse_csc(const Tensor& self, std::optional<int64_t> dense_dim) {
  return composite::to_sparse(self, Layout::SparseCsc, {}, dense_dim);
}
Tensor to_sparse_bsr(const Tensor& self, IntArrayRef blocksize, std::optional<int64_t> dense_dim) {
  return composite::to_sparse(self, Layout::SparseBsr, blocksize, dense_dim);
}
Tensor to_sparse_bsc(const Tensor& self, IntArrayRef blocksize, std::optional<int64_t> dense_dim) {
  return composite::to_sparse(self, Layout::SparseBsc, blocksize, dense_dim);
}

Tensor _convert_layout(const Tensor& self, Layout layout, std::optional<IntArrayRef> blocksize,
                       std::optional<int64_t> dense_dim) {
  if (layout == Layout::Strided) return is_sparse(self) ? self.to_dense() : self;
  MICA_CHECK(!is_sparse(self) || !dense_dim || *dense_dim == sparse_parts(self).dense_dim,
             "to_sparse: dense_dim argument must be ", is_sparse(self) ? sparse_parts(self).dense_dim : 0,
             " for a tensor of layout ", self.layout());
  const int64_t dense = dense_dim.value_or(is_sparse(self) ? sparse_parts(self).dense_dim : 0);
  if (layout == Layout::SparseCoo) {
    if (is_coo(self)) return self;
    if (is_compressed(self)) return compressed_to_coo(self);
    MICA_CHECK(dense >= 0 && dense <= self.dim(), "to_sparse: dense_dim argument must be in [0, ", self.dim(),
               "] range, but ", dense, " is given");
    return coo_from_dense(self, self.dim() - dense);
  }
  MICA_CHECK(self.dim() - dense >= 2 && dense >= 0, "to_sparse_", compresses_rows(layout) ? "csr" : "csc",
             ": the dimensionality of a tensor to be converted to ", layout,
             " must be 2 + the number of dense dimensions at least, but it has size ", self.sizes(), " and dense_dim ",
             dense);
  int64_t height = 1, width = 1;
  if (has_blocks(layout)) {
    MICA_CHECK(blocksize || is_sparse(self), "to_sparse: conversion from ", self.layout(), " to ", layout,
               " requires blocksize specified.");
    DimVector block = blocksize ? DimVector(*blocksize) : has_blocks(self.layout()) ? block_of(self) : DimVector{1, 1};
    MICA_CHECK(block.size() == 2 && block[0] > 0 && block[1] > 0, "blocksize needs to be a tuple of size 2 with ",
               "positive numbers, but got ", block.ref());
    height = block[0];
    width = block[1];
  }
  if (!is_sparse(self)) {
    if (self.dim() == 2 && !has_blocks(layout) && dense == 0)
      return compressed_from_coo(coo_from_dense(self, 2), layout);
    return compressed_from_dense(self, layout, height, width, dense);
  }
  // Batches must hold the same number of elements, and only the dense form tells that for all.
  if (self.dim() - dense != 2)
    return with_indices_like(compressed_from_dense(self.to_dense(), layout, height, width, dense), self);
  if (has_blocks(layout) && has_blocks(self.layout()) && layout != self.layout() &&
      block_of(self).ref() == DimVector{height, width}.ref())
    return with_indices_like(blocks_turned(self, layout), self);
  const Tensor elements = is_coo(self) ? self : compressed_to_coo(self);
  const Tensor made =
      has_blocks(layout) ? blocks_from_coo(elements, layout, height, width) : compressed_from_coo(elements, layout);
  return with_indices_like(made, self);
}

}  // namespace mica::composite
