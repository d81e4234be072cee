"""Calls that make tensors of what a graph computes, as calls that graphs know."""

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica.utils._pytree import tree_leaves

__all__ = ["results_that_are_wanted", "tensor_of_sizes", "tensor_of_tensor"]


def tensor_of_tensor(name, args, kwargs):
    """A function that does what as_tensor(x), asarray(x), tensor(x) or y.new_tensor(x) does of a tensor; None of other calls."""
    like, *given = args if name == "new_tensor" else (None, *args)
    options = dict(kwargs)
    data = given[0] if given else options.pop("obj" if name == "asarray" else "data", None)
    known = {"dtype", "device", "copy", "requires_grad", "pin_memory"}
    if (
        len(given) > 1
        or not isinstance(data, _C.TensorBase)
        or not options.keys() <= known
        or options.get("pin_memory")
    ):
        return None
    wanted = {key: options[key] for key in ("dtype", "device") if options.get(key) is not None}
    if like is not None:
        wanted.setdefault("device", like.device)

    def made():
        if name in ("tensor", "new_tensor"):
            copy = data.detach().to(copy=True, **wanted) if wanted else data.detach().clone()
            return copy.requires_grad_() if options.get("requires_grad") else copy
        if options.get("copy"):
            return data.to(copy=True, **wanted) if wanted else data.clone()
        return data.to(**wanted) if wanted else data

    return made


def results_that_are_wanted(values, inverse, counts, return_inverse=False, return_counts=False, dim=None, **self):
    """What the function gives of the operator's results."""
    found = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return found if len(found) > 1 else values


def tensor_of_sizes(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """torch.tensor(data) with open sizes among the numbers."""
    if dtype is None:
        numbers = [leaf for leaf in tree_leaves(data) if not isinstance(leaf, (bool, mica.SymBool))]
        is_float = any(isinstance(leaf, (float, mica.SymFloat)) for leaf in numbers)
        dtype = mica.get_default_dtype() if is_float else mica.int64 if numbers else mica.bool

    def made(value):
        if isinstance(value, (list, tuple)):
            return mica.stack([made(each) for each in value])
        if isinstance(value, mica.SymBool):
            value = open_sizes.number_of_truth(value)
        return mica.full((), value, dtype=dtype, device=device)

    return made(data).requires_grad_() if requires_grad else made(data)
