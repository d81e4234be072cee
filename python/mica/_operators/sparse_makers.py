"""Compressed sparse tensors by their dimensions alone, and the check of their indices, by torch's names."""

from mica import _C

SCHEMAS = """\
_sparse_compressed_tensor_with_dims(int nnz, int dense_dim, int[] size, int[] blocksize, ScalarType index_dtype, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
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
