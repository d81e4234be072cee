"""Masked tensors whose data and mask are sparse, COO or CSR, with the same indices.

Pointwise functions work on the values alone. What changes the shape goes by the dense form and comes back sparse;
reductions return a dense masked tensor.
"""

import mica
from mica.masked.maskedtensor._sparse_parts import LAYOUTS, same_indices, with_values
from mica.masked.maskedtensor.core import MaskedTensor, _with_mask, to_dense, to_layout


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
        return _with_mask(with_values(like.get_data(), values), like.get_mask())
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
