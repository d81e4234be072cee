// The rules for the parts of a sparse tensor, and torch's errors where they are broken.
#include "core/kernel_arguments.h"
#include "layouts/sparse/parts.h"

namespace mica::layouts::sparse {

namespace {

int64_t read(const Tensor& zero_dim) { return zero_dim.item<int64_t>(); }

// The first position of a flat list of indices that lies outside [0, size), or -1.
int64_t first_outside(const Tensor& list, int64_t size) {
  int64_t position = -1;
  if (has_work(list)) MICA_KERNEL(list.device(), first_outside)(list.view_of(), 0, size, &position);
  return position;
}

}  // namespace

void check_coo(const Tensor& indices, const Tensor& values, IntArrayRef size, bool coalesced) {
  MICA_CHECK(!is_sparse(indices), "expected indices to be a dense tensor, but got indices of layout ",
             indices.layout());
  MICA_CHECK(!is_sparse(values), "expected values to be a dense tensor, but got values of layout ", values.layout());
  MICA_CHECK(indices.dtype() == DType::Int64, "indices must be an int64 tensor, but got dtype ", indices.dtype());
  MICA_CHECK(values.device() == indices.device(), "device of indices (", indices.device(),
             ") must match device of values (", values.device(), ")");
  MICA_CHECK(indices.dim() == 2, "indices must be sparse_dim x nnz, but got: ", indices.sizes());
  MICA_CHECK(values.dim() >= 1, "values must be nnz x dense sizes, but got: ", values.sizes());
  const int64_t sparse_dim = indices.size(0), dense_dim = values.dim() - 1, nnz = indices.size(1);
  MICA_CHECK(static_cast<int64_t>(size.size()) == sparse_dim + dense_dim, "number of dimensions must be sparse_dim (",
             sparse_dim, ") + dense_dim (", dense_dim, "), but got ", size.size());
  MICA_CHECK(nnz == values.size(0), "indices and values must have same nnz, but got nnz from indices: ", nnz,
             ", nnz from values: ", values.size(0));
  for (const int64_t n : size) MICA_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": ", size);
  DimVector expected(values.sizes());
  for (int64_t d = 0; d < dense_dim; ++d) expected[d + 1] = size[static_cast<size_t>(sparse_dim + d)];
  MICA_CHECK(values.sizes() == expected.ref(), "values has incorrect size, expected ", expected.ref(), ", got ",
             values.sizes());
  for (int64_t d = 0; d < sparse_dim; ++d) {
    const Tensor row = indices.select(0, d).contiguous();
    const int64_t extent = size[static_cast<size_t>(d)], at = first_outside(row, extent);
    if (at < 0) continue;
    const int64_t index = read(row.select(0, at));
    MICA_CHECK(index >= 0, "found negative index ", index, " for dim ", d);
    fail(cat("size is inconsistent with indices: for dim ", d, ", size is ", extent, " but found index ", index));
  }
  if (coalesced && nnz > 1) {
    const Tensor keys = keys_of(indices.contiguous(), size.slice(0, static_cast<size_t>(sparse_dim)));
    const Tensor rising = keys.narrow(0, 0, nnz - 1).lt(keys.narrow(0, 1, nnz - 1)).all();
    MICA_CHECK(rising.item<bool>(), "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor");
  }
}

void check_compressed(Layout layout, const Tensor& compressed, const Tensor& plain, const Tensor& values,
                      IntArrayRef size) {
  const bool rows = compresses_rows(layout), blocks = has_blocks(layout);
  const char* compressed_name = rows ? "crow_indices" : "ccol_indices";
  const char* plain_name = rows ? "col_indices" : "row_indices";
  const char* line = rows ? "row" : "column";
  MICA_CHECK(layout == Layout::SparseCsr || layout == Layout::SparseCsc || blocks, "expected compressed sparse layout ",
             "but got ", layout);
  for (const Tensor* t : {&compressed, &plain, &values})
    MICA_CHECK(!is_sparse(*t), "expected the parts of a compressed tensor to be strided, but got layout ", t->layout());
  const int64_t batch = compressed.dim() - 1, block_dims = blocks ? 2 : 0;
  MICA_CHECK(batch >= 0, compressed_name, " must have dimensionality >= 1 but got ", compressed.dim());
  MICA_CHECK(plain.dim() == batch + 1, compressed_name, " and ", plain_name, " dimensionalities must be equal but got ",
             compressed.dim(), " and ", plain.dim(), ", respectively");
  const int64_t dense_dim = values.dim() - batch - block_dims - 1;
  MICA_CHECK(dense_dim >= 0, "values must have dimensionality > sum of batch and block dimensionalities (=", batch,
             " + ", block_dims, ") but got ", values.dim());
  MICA_CHECK(static_cast<int64_t>(size.size()) == batch + 2 + dense_dim, "tensor dimensionality must be sum of batch, ",
             "base, and dense dimensionalities (=", batch, " + 2 + ", dense_dim, ") but got ", size.size());
  for (const int64_t n : size) MICA_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": ", size);
  const int64_t height = blocks ? values.size(batch + 1) : 1, width = blocks ? values.size(batch + 2) : 1;
  MICA_CHECK(height > 0 && width > 0, "blocksize must be greater than zero, but got [", height, ", ", width, "]");
  const int64_t nrows = size[static_cast<size_t>(batch)], ncolumns = size[static_cast<size_t>(batch + 1)];
  MICA_CHECK(nrows % height == 0 && ncolumns % width == 0, "tensor shape[", batch, "] and shape[", batch + 1,
             "] must be divisible by blocksize [", height, ", ", width, "], but they are ", nrows, " and ", ncolumns);
  for (int64_t d = 0; d < batch; ++d)
    MICA_CHECK(compressed.size(d) == size[static_cast<size_t>(d)] && plain.size(d) == compressed.size(d) &&
                   values.size(d) == compressed.size(d),
               "all batch dimensions of ", compressed_name, " (=", compressed.sizes(), "), ", plain_name,
               " (=", plain.sizes(), "), values (=", values.sizes(), ") and the tensor (=", size, ") must be equal");
  for (int64_t d = 0; d < dense_dim; ++d)
    MICA_CHECK(values.size(batch + 1 + block_dims + d) == size[static_cast<size_t>(batch + 2 + d)],
               "values has incorrect size: its dense dimensions (=", values.sizes(),
               ") differ from the tensor's (=", size, ")");
  const int64_t lines = rows ? nrows / height : ncolumns / width, extent = rows ? ncolumns / width : nrows / height;
  const int64_t nnz = plain.size(-1);
  MICA_CHECK(compressed.size(-1) == lines + 1, compressed_name, ".shape[-1] must be equal to the number of ", line,
             "s (blocks of ", line, "s) + 1 (=", lines + 1, "), but got ", compressed.size(-1));
  MICA_CHECK(values.size(batch) == nnz, plain_name, ".shape[-1] must be equal to nnz (=", values.size(batch),
             ") as defined by values.shape[", batch, "], but got ", nnz);
  MICA_CHECK(compressed.dtype() == DType::Int32 || compressed.dtype() == DType::Int64, compressed_name, " and ",
             plain_name, " dtype must be Int or Long, but got ", info(compressed.dtype()).legacy);
  MICA_CHECK(compressed.dtype() == plain.dtype(), compressed_name, " and ", plain_name,
             " must have the same dtype, bot got ", info(compressed.dtype()).legacy, " and ",
             info(plain.dtype()).legacy, ", respectively");
  MICA_CHECK(compressed.device() == values.device() && plain.device() == values.device(), "device of ", compressed_name,
             " (=", compressed.device(), ") must match device of values (=", values.device(), ")");
  if (values.is_meta()) return;
  const Tensor begins = int64_indices(compressed);
  if (begins.numel() == 0) return;
  const Tensor first = begins.select(-1, 0), last = begins.select(-1, lines);
  MICA_CHECK(first.eq(0).all().item<bool>(), "`", compressed_name, "[..., 0] == 0` is not satisfied.");
  MICA_CHECK(last.eq(Scalar(nnz)).all().item<bool>(), "`", compressed_name, "[..., -1] == nnz` is not satisfied.");
  if (lines > 0) {
    const Tensor lengths = begins.narrow(-1, 1, lines).sub(begins.narrow(-1, 0, lines));
    MICA_CHECK(lengths.ge(0).all().item<bool>() && lengths.le(Scalar(extent)).all().item<bool>(),
               "`0 <= ", compressed_name, "[..., 1:] - ", compressed_name, "[..., :-1] <= ", rows ? "ncols" : "nrows",
               "` is not satisfied.");
  }
  const Tensor flat = int64_indices(plain).reshape({-1});
  MICA_CHECK(first_outside(flat, extent) < 0, "`0 <= ", plain_name, " < ", rows ? "ncols" : "nrows",
             "` is not satisfied.");
  if (nnz > 1) {
    // Indices rise within a line, so a step that does not rise begins the next line.
    int64_t batches = 1;
    for (int64_t d = 0; d < batch; ++d) batches *= size[static_cast<size_t>(d)];
    const Tensor table = begins.reshape({batches, lines + 1}), indices = flat.reshape({batches, nnz});
    const Tensor rises = indices.narrow(1, 0, nnz - 1).lt(indices.narrow(1, 1, nnz - 1));
    const Tensor starts = mica::zeros({batches, nnz + 1}, TensorOptions(DType::Bool).device(values.device()));
    starts.scatter_(1, table, Scalar(true));
    MICA_CHECK(rises.logical_or(starts.narrow(1, 1, nnz - 1)).all().item<bool>(), "`", plain_name, "[..., ",
               compressed_name, "[..., i - 1]:", compressed_name, "[..., i]] for all i = 1, ..., ",
               rows ? "nrows" : "ncols", " are sorted and distinct along the last dimension values` is not satisfied.");
  }
}

}  // namespace mica::layouts::sparse

namespace mica::composite {

bool _validate_sparse_coo_tensor_args(const Tensor& indices, const Tensor& values, IntArrayRef size,
                                      std::optional<bool> is_coalesced) {
  layouts::sparse::check_coo(indices, values, size, is_coalesced.value_or(false));
  return true;
}

bool _validate_sparse_compressed_tensor_args(const Tensor& compressed_indices, const Tensor& plain_indices,
                                             const Tensor& values, IntArrayRef size, Layout layout) {
  layouts::sparse::check_compressed(layout, compressed_indices, plain_indices, values, size);
  return true;
}

}  // namespace mica::composite
