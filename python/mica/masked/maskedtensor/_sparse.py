"""Masked tensors whose data and mask are sparse, COO or CSR, with the same indices.

Pointwise functions work on the values alone. What changes the shape goes by the dense form and comes back sparse;
reductions return a dense masked tensor.
"""

import mica
from mica.masked.maskedtensor.core import MaskedTensor, _with_mask

LAYOUTS = (mica.sparse_coo, mica.sparse_csr)


def aligned(data, mask):
    """Data at the indices of the mask: where it has others, zeros are added and elements left out."""
    if data.layout == mica.sparse_coo:
        data, mask = data.coalesce(), mask.coalesce()
    if data._nnz() != mask._nnz():
        data = _at(data.to_dense(), mask)
    return data, mask


def same_indices(a, b):
    if a.layout == mica.sparse_coo:
        return mica.equal(a.indices(), b.indices())
    return mica.equal(a.crow_indices(), b.crow_indices()) and mica.equal(a.col_indices(), b.col_indices())


def check(data, mask):
    if data.shape != mask.shape:  # said in other words later
        return
    if data.layout == mica.sparse_coo and not same_indices(data, mask):
        raise ValueError("data and mask are both sparse COO tensors but do not have the same indices.")
    if data.layout == mica.sparse_csr and not same_indices(data, mask):
        raise ValueError("data and mask are both sparse CSR tensors but do not share either crow or col indices.")


def _with_values(like, values):
    """A sparse tensor with the indices of another one."""
    if like.layout == mica.sparse_coo:
        return mica.sparse_coo_tensor(like.indices(), values, like.shape, is_coalesced=True)
    return mica.sparse_csr_tensor(like.crow_indices(), like.col_indices(), values, like.shape)


def _at(dense, mask):
    """The elements of a dense tensor at the indices of a sparse one."""
    if mask.layout == mica.sparse_coo:
        return _with_values(mask, dense[tuple(mask.indices().unbind(0))])
    places = mask.to_sparse_coo().coalesce().indices()
    return _with_values(mask, dense[tuple(places.unbind(0))])


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
    return _at(dense, marks.to_sparse_csr() if layout == mica.sparse_csr else marks.to_sparse_coo().coalesce())


def to_dense(x):
    """The same masked tensor with strided data and mask."""
    return _with_mask(x.get_data().to_dense(), x.get_mask().to_dense())


def to_layout(x, layout):
    """The same masked tensor in a layout."""
    if x.layout == layout:
        return x
    x = x if x.layout == mica.strided else to_dense(x)
    if layout == mica.strided:
        return x
    mask = x.get_mask()
    mask = mask.to_sparse_csr() if layout == mica.sparse_csr else mask.to_sparse_coo().coalesce()
    return _with_mask(_at(x.get_data(), mask), mask)


def is_sparse(x):
    return isinstance(x, MaskedTensor) and x.get_mask().layout != mica.strided


def any_sparse(values):
    return any(any_sparse(v) if isinstance(v, (list, tuple)) else is_sparse(v) for v in values)


def _dense(value):
    if isinstance(value, (list, tuple)):
        return type(value)(_dense(v) for v in value)
    if isinstance(value, mica.Tensor) and not isinstance(value, MaskedTensor) and value.layout in LAYOUTS:
        return value.to_dense()  # a condition of where
    return to_dense(value) if is_sparse(value) else value


def _back(result, layout):
    if isinstance(result, (list, tuple)):
        return type(result)(_back(r, layout) for r in result)
    if not isinstance(result, MaskedTensor) or result.dim() == 0:
        return result
    return to_layout(result, layout if result.dim() == 2 else mica.sparse_coo)


def on_values(func, args, kwargs):
    """A pointwise function of masked tensors that share their indices."""
    masked = [a for a in args if isinstance(a, MaskedTensor)]
    first = masked[0]
    for other in masked[1:]:
        if other.layout != first.layout:
            raise ValueError(f"`a` and `b` must have the same layout. Got {first.layout} and {other.layout}")
        mine, its = first.get_mask(), other.get_mask()
        if mine.shape != its.shape or not same_indices(mine, its) or not mica.equal(mine.values(), its.values()):
            raise ValueError("Input masks must match. If you need support for this, please open an issue on Github.")
    if any(isinstance(a, mica.Tensor) and not isinstance(a, MaskedTensor) and a.dim() for a in args):
        raise TypeError(
            "a sparse MaskedTensor and a plain tensor: make the tensor a MaskedTensor with the same mask first"
        )
    given = [a.get_data().values() if isinstance(a, MaskedTensor) else a for a in args]
    return first, func(*given, **kwargs)


def call(name, kind, func, args, kwargs, dense_call):
    """A function of which at least one argument is a sparse masked tensor."""
    sparse = next(a for a in _flat(args) if is_sparse(a))
    if kind == "pointwise":
        like, values = on_values(func, args, kwargs)
        return _with_mask(_with_values(like.get_data(), values), like.get_mask())
    if kind == "in place":
        on_values(func, args, kwargs)  # the values are a view of the data
        return args[0]
    result = dense_call(func, _dense(tuple(args)), {k: _dense(v) for k, v in kwargs.items()})
    return _back(result, sparse.layout) if kind == "shape" else result


def _flat(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value
