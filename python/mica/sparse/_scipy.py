"""Between sparse matrices of SciPy and sparse tensors; compressed ones share their memory."""

from mica import _C


def from_scipy(matrix):
    """A tensor over the memory of a SciPy sparse matrix or array of format coo, csr, csc or bsr."""
    from mica.sparse._construct import sparse_compressed_tensor, sparse_coo_tensor

    kind = matrix.format
    if kind == "coo":
        rows, columns = (_C.from_numpy(i) for i in (matrix.row, matrix.col))
        return sparse_coo_tensor(_C.stack([rows, columns]), _C.from_numpy(matrix.data), matrix.shape)
    layout = {"csr": _C.sparse_csr, "csc": _C.sparse_csc, "bsr": _C.sparse_bsr}.get(kind)
    if layout is None:
        return from_scipy(matrix.tocsr())
    if not matrix.has_sorted_indices or not getattr(matrix, "has_canonical_format", True):
        matrix = matrix.copy()
        matrix.sum_duplicates()
    parts = (_C.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return sparse_compressed_tensor(*parts, matrix.shape, layout=layout)


def to_scipy(tensor):
    """A SciPy sparse array of the tensor's layout (csr for bsc); compressed parts share the tensor's memory."""
    import scipy.sparse

    tensor = tensor.detach()
    if tensor.layout is _C.strided:
        tensor = tensor.to_sparse()
    if tensor.layout is _C.sparse_coo:
        tensor = tensor.coalesce()
        rows, columns = tensor.indices().numpy()
        return scipy.sparse.coo_array((tensor.values().numpy(), (rows, columns)), shape=tuple(tensor.shape))
    if tensor.layout is _C.sparse_bsc:
        tensor = tensor.to_sparse_csr()
    make, first, second = {
        _C.sparse_csr: (scipy.sparse.csr_array, "crow_indices", "col_indices"),
        _C.sparse_csc: (scipy.sparse.csc_array, "ccol_indices", "row_indices"),
        _C.sparse_bsr: (scipy.sparse.bsr_array, "crow_indices", "col_indices"),
    }[tensor.layout]
    parts = (tensor.values(), getattr(tensor, second)(), getattr(tensor, first)())
    return make(tuple(p.numpy() for p in parts), shape=tuple(tensor.shape))
