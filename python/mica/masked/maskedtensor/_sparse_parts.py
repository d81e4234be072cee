"""The data and the mask of sparse masked tensors, as plain sparse tensors."""

import mica

LAYOUTS = (mica.sparse_coo, mica.sparse_csr)


def same_indices(a, b):
    if a.layout == mica.sparse_coo:
        return mica.equal(a.indices(), b.indices())
    return mica.equal(a.crow_indices(), b.crow_indices()) and mica.equal(a.col_indices(), b.col_indices())


def check_indices(data, mask):
    if data.shape != mask.shape:  # reported later, in other words
        return
    if data.layout == mica.sparse_coo and not same_indices(data, mask):
        raise ValueError("data and mask are both sparse COO tensors but do not have the same indices.")
    if data.layout == mica.sparse_csr and not same_indices(data, mask):
        raise ValueError("data and mask are both sparse CSR tensors but do not share either crow or col indices.")


def aligned(data, mask):
    """Data at the indices of the mask: where it has others, zeros are added and elements left out."""
    if data.layout == mica.sparse_coo:
        data, mask = data.coalesce(), mask.coalesce()
    if data._nnz() != mask._nnz():
        data = at(data.to_dense(), mask)
    return data, mask


def with_values(like, values):
    """A sparse tensor with the indices of another one."""
    if like.layout == mica.sparse_coo:
        return mica.sparse_coo_tensor(like.indices(), values, like.shape, is_coalesced=True)
    return mica.sparse_csr_tensor(like.crow_indices(), like.col_indices(), values, like.shape)


def at(dense, mask):
    """The elements of a dense tensor at the indices of a sparse one."""
    if mask.layout == mica.sparse_coo:
        return with_values(mask, dense[tuple(mask.indices().unbind(0))])
    places = mask.to_sparse_coo().coalesce().indices()
    return with_values(mask, dense[tuple(places.unbind(0))])


def all_marked(data):
    """Which elements a sparse tensor specifies, as a dense mask."""
    data = data.to_sparse_coo().coalesce()
    marks = mica.zeros(data.shape, dtype=mica.bool, device=data.device)
    marks[tuple(data.indices().unbind(0))] = True
    return marks


def at_marked(dense, marks, layout):
    """The marked elements of a dense tensor, sparse."""
    if dense.dim() == 0:
        indices = mica.zeros(0, int(marks), dtype=mica.int64)
        return mica.sparse_coo_tensor(indices, dense.reshape(1)[: int(marks)], (), is_coalesced=True)
    return at(dense, marks.to_sparse_csr() if layout == mica.sparse_csr else marks.to_sparse_coo().coalesce())
