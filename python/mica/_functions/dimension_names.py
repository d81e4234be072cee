"""Calls that give dimensions by name: x.sum("C"), x.flatten(["C", "H"], "features"), torch.zeros(2, 3, names=("N", "C")).

The parser of an operation asks here when a call fits none of its signatures and mentions a name. Nothing of this is loaded
by programs without named tensors.
"""

from itertools import pairwise

from mica import _C
from mica._C import Tensor

_DIMENSIONS = {"dim", "dim0", "dim1", "dim2", "dims", "start_dim", "end_dim", "axis", "axis0", "axis1"}


def _position(tensor, name):
    return tensor._name_position(name)


def _positions(tensor, value):
    """The value with names replaced by the positions of their dimensions."""
    if isinstance(value, str):
        return _position(tensor, value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, str) for v in value):
        return [_position(tensor, v) if isinstance(v, str) else v for v in value]
    return value


def _flatten(tensor, dims, end_dim=None, out_dim=None):
    """Named dimensions that follow each other, as one called out_dim."""
    if isinstance(dims, str):
        first, last = _position(tensor, dims), _position(tensor, end_dim)
    else:
        out_dim = end_dim if out_dim is None else out_dim
        places = _positions(tensor, dims)
        for a, b in pairwise(places):
            if b != a + 1:
                raise RuntimeError(
                    f"flatten(tensor, dims, out_dim): dims {list(dims)} must be consecutive in Tensor{list(tensor.names)}"
                )
        first, last = places[0], places[-1]
    names = tensor.names
    flat = tensor.rename(None).flatten(first, last)
    return flat.rename(*names[:first], out_dim, *names[last + 1 :])


def _unflatten(tensor, dim, sizes, names=None):
    """One dimension as several, each with its name: x.unflatten("features", (("C", 2), ("H", 5)))."""
    pairs = list(sizes.items()) if hasattr(sizes, "items") else list(sizes)
    if names is None:
        names, sizes = [name for name, _ in pairs], [size for _, size in pairs]
    at = _positions(tensor, dim)
    own = tensor.names
    return tensor.rename(None).unflatten(at, sizes).rename(*own[:at], *names, *own[at + 1 :])


_SPECIAL = {"flatten": _flatten, "unflatten": _unflatten}


def call(name, is_method, arguments, keywords):
    """The result of the call that is meant, or NotImplemented where no dimension is given by name."""
    function = getattr(Tensor if is_method else _C, name, None)
    if function is None:
        return NotImplemented
    if "names" in keywords and name != "unflatten":
        names = keywords.pop("names")
        made = function(*arguments, **keywords)
        return made if names is None else made.rename_(*names)
    tensor = next((a for a in (*arguments, *keywords.values()) if isinstance(a, Tensor)), None)
    if tensor is None:
        lists = [a for a in arguments if isinstance(a, (list, tuple)) and a and isinstance(a[0], Tensor)]
        tensor = lists[0][0] if lists else None
    if tensor is None or not tensor.has_names():
        return NotImplemented
    if name in _SPECIAL:
        return _SPECIAL[name](*arguments, **keywords)
    changed_keywords = {k: _positions(tensor, v) if k in _DIMENSIONS else v for k, v in keywords.items()}
    changed = [_positions(tensor, a) for a in arguments]
    if changed == list(arguments) and changed_keywords == keywords:
        return NotImplemented
    return function(*changed, **changed_keywords)
