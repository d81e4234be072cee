"""Sparse tensors of parts that fit or by their dimensions alone, the check of their indices and their other form, by torch's names."""

from mica import _C

SCHEMAS = """\
_convert_indices_from_coo_to_csr(Tensor self, int size, *, bool out_int32=False) -> Tensor
_convert_indices_from_csr_to_coo(Tensor crow_indices, Tensor col_indices, *, bool out_int32=False, bool transpose=False) -> Tensor
_sparse_compressed_tensor_with_dims(int nnz, int dense_dim, int[] size, int[] blocksize, ScalarType index_dtype, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
_sparse_coo_tensor_with_dims_and_tensors(int sparse_dim, int dense_dim, SymInt[] size, Tensor indices, Tensor values, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=False, bool? is_coalesced=None) -> Tensor
_validate_compressed_sparse_indices(bool is_crow, Tensor compressed_idx, Tensor plain_idx, int cdim, int dim, int nnz) -> ()
"""


def _validate_compressed_sparse_indices(is_crow, compressed_idx, plain_idx, cdim, dim, nnz):
    """Refuse indices that no compressed tensor of `cdim` lines and `dim` places a line has."""
    if plain_idx.size(-1) != nnz:
        raise RuntimeError(f"plain_indices must have {nnz} indices, but has {plain_idx.size(-1)}")
    sizes = (cdim, dim) if is_crow else (dim, cdim)
    layout = _C.sparse_csr if is_crow else _C.sparse_csc
    values = _C.zeros(plain_idx.shape, dtype=_C.uint8, device=plain_idx.device)
    _C._validate_sparse_compressed_tensor_args(
        compressed_idx, plain_idx, values, (*compressed_idx.shape[:-1], *sizes), layout
    )


def _sparse_coo_tensor_with_dims_and_tensors(
    sparse_dim,
    dense_dim,
    size,
    indices,
    values,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    is_coalesced=None,
):
    """A COO tensor of indices and values that fit its size; nothing is checked."""
    return _C._sparse_coo_tensor_unsafe(indices, values, size, is_coalesced)


def _sparse_compressed_tensor_with_dims(
    nnz, dense_dim, size, blocksize, index_dtype, *, dtype=None, layout=None, device=None, pin_memory=None
):
    """A compressed tensor with room for `nnz` elements or blocks in each matrix: the first ones, all zero."""
    blocked = layout in (_C.sparse_bsr, _C.sparse_bsc)
    if layout not in (_C.sparse_csr, _C.sparse_csc) and not blocked:
        raise RuntimeError(f"_sparse_compressed_tensor_with_dims: expected a compressed sparse layout but got {layout}")
    if blocked != (len(blocksize) == 2) or (not blocked and blocksize):
        raise RuntimeError(f"_sparse_compressed_tensor_with_dims: blocksize {list(blocksize)} does not fit {layout}")
    if index_dtype not in (_C.int32, _C.int64):
        raise RuntimeError(f"_sparse_compressed_tensor_with_dims: indices must be int32 or int64, not {index_dtype}")
    batch = len(size) - dense_dim - 2
    if batch < 0:
        raise RuntimeError(f"_sparse_compressed_tensor_with_dims: {list(size)} has no two sparse dimensions")
    height, width = blocksize if blocked else (1, 1)
    rows, columns = size[batch] // height, size[batch + 1] // width
    by_rows = layout in (_C.sparse_csr, _C.sparse_bsr)
    lines, places = (rows, columns) if by_rows else (columns, rows)
    if nnz > lines * places:
        raise RuntimeError(f"_sparse_compressed_tensor_with_dims: {nnz} elements do not fit {lines} x {places} places")
    upper = tuple(size[:batch])
    indices = {"dtype": index_dtype, "device": device}
    compressed = _C.arange(lines + 1, **indices).mul_(places).clamp_(max=nnz)
    plain = _C.arange(nnz, **indices).remainder_(max(places, 1))
    inner = (nnz, *(blocksize if blocked else ()), *size[batch + 2 :])
    values = _C.zeros((*upper, *inner), dtype=dtype, device=device)
    spread = [x.expand(*upper, -1).contiguous() for x in (compressed, plain)]
    return _C._sparse_compressed_tensor_unsafe(*spread, values, _C.Size(size), layout)


def _convert_indices_from_coo_to_csr(self, size, *, out_int32=False, out=None):
    """Where each of `size` rows begins among elements that are sorted by their rows, and the last one's end."""
    if self.dim() > 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {self.dim()} dimensional tensor.")
    if self.dtype not in (_C.int32, _C.int64):
        raise RuntimeError(
            f"_convert_indices_from_coo_to_csr: expected indices of int32 or int64, but got {self.dtype}"
        )
    rows = _C.arange(size + 1, dtype=self.dtype, device=self.device)
    begins = _C.searchsorted(self.contiguous().reshape(-1), rows, out_int32=out_int32)
    return begins if out is None else out.copy_(begins)


def _convert_indices_from_csr_to_coo(crow_indices, col_indices, *, out_int32=False, transpose=False, out=None):
    """The row and the column of each element, as the rows of a matrix; those of a batch have its places before them."""
    if crow_indices.shape[:-1] != col_indices.shape[:-1] or not crow_indices.dim():
        raise RuntimeError("crow_indices and col_indices are supposed to have the same batch shape.")
    batch, places = crow_indices.shape[:-1], col_indices.size(-1)
    lengths = crow_indices.reshape(-1, crow_indices.size(-1)).diff(dim=1)
    if lengths.numel() and (bool((lengths < 0).any()) or bool((lengths.sum(1) != places).any())):
        raise RuntimeError(f"_convert_indices_from_csr_to_coo: crow_indices do not count {places} col_indices")
    rows = _C.arange(lengths.size(1), device=lengths.device).repeat(len(lengths)).repeat_interleave(lengths.reshape(-1))
    pair = [rows, col_indices.reshape(-1)]
    number = _C.arange(len(lengths), device=lengths.device).repeat_interleave(places)
    above = list(_C.unravel_index(number, batch)) if batch else []
    found = _C.stack([*above, *(pair[::-1] if transpose else pair)]).to(_C.int32 if out_int32 else _C.int64)
    return found if out is None else out.copy_(found)
