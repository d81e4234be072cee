"""What torch's functions do with nested tensors. They run on the values, where the ragged dimension does not matter."""

import math

import mica
from mica import _C
from mica._functions.families import own_name
from mica.func._batch_rules import POINTWISE
from mica.nested._internal.nested_tensor import NestedInt, NestedTensor, answer_with, jagged_view

Tensor = mica.Tensor
_POINTWISE = frozenset((*POINTWISE, "masked_fill", "fill", "dropout", "gelu", "relu", "rrelu"))
_IN_PLACE = frozenset(
    [f"{name}_" for name in POINTWISE if not name.startswith("_")] + ["copy_", "zero_", "fill_", "rrelu_"]
)
_SAME = frozenset(
    """
    _to_copy clone contiguous detach to float double half bfloat16 int long bool byte char short cfloat cdouble chalf
    cpu cuda type_as zeros_like ones_like empty_like full_like rand_like randn_like randint_like requires_grad_
    alpha_dropout feature_dropout real imag view_as_real view_as_complex
    """.split()  # noqa: SIM905
)
_RULES = {}


def _rule(*names):
    def enter(function):
        for name in names:
            _RULES[name] = function
        return function

    return enter


def _first(args):
    for x in args:
        if isinstance(x, NestedTensor):
            return x
        if type(x) in (list, tuple):
            found = _first(x)
            if found is not None:
                return found
    return None


def _same_lengths(a, b):
    return a._offsets is b._offsets or (
        a._lengths is None and b._lengths is None and mica.equal(a._offsets, b._offsets)
    )


def _shown(x):
    return f"({', '.join(map(repr, x._sizes() if isinstance(x, NestedTensor) else x.shape))})"


def _matched(name, nested, x):
    """Another argument of a pointwise operation, as it broadcasts with the values."""
    if isinstance(x, NestedTensor):
        if x._ragged != nested._ragged or not _same_lengths(nested, x):
            raise RuntimeError(
                f"cannot call binary pointwise function {name} with inputs of shapes {_shown(nested)} and {_shown(x)}"
            )
        return x.values()
    if not isinstance(x, Tensor) or x.dim() == 0:
        return x
    after = nested.dim() - nested._ragged - 1  # the dimensions behind the ragged one
    if x.dim() <= after:
        return x
    if x.dim() == nested.dim() and x.shape[nested._ragged] == 1:
        if x.shape[0] == 1:
            return x.squeeze(0)
        if x.shape[0] == len(nested) and nested._lengths is None:
            return x.squeeze(nested._ragged).index_select(0, nested._owners()).movedim(0, nested._ragged - 1)
    if x.dim() == nested.dim() - 1 and x.shape[nested._ragged - 1] == 1:
        return x
    raise RuntimeError(
        f"cannot call binary pointwise function {name} with inputs of shapes {_shown(nested)} and {_shown(x)}"
    )


def _pointwise(func, args, kwargs):
    nested = _first((*args, *kwargs.values()))
    for x in (*args, *kwargs.values()):
        if isinstance(x, NestedInt):
            raise RuntimeError(
                f"NestedTensor {func.__name__}: invalid argument {x!r}, a size that differs from sequence to sequence"
            )
    args = [_matched(func.__name__, nested, x) for x in args]
    made = func(*args, **{k: _matched(func.__name__, nested, x) for k, x in kwargs.items()})
    return nested._rewrapped(made) if isinstance(made, Tensor) else type(made)(map(nested._rewrapped, made))


def _inside(x):
    """A mask of the values that belong to a sequence and not to a gap, in a shape that broadcasts with the values."""
    places, owners = _C.arange(x.values().shape[x._ragged - 1], device=x._offsets.device), x._owners()
    behind = places - x._offsets[owners]
    inside = (behind >= 0) & (behind < x._lengths[owners])
    return inside.reshape([-1] + [1] * (x.dim() - x._ragged - 1))


def _weighted(x, values):
    """Wraps the result of an operation with weights that all sequences share. Values in gaps give the weights no gradient."""
    if x._lengths is not None and values.requires_grad:
        values = mica.where(_inside(x), values, values.detach())
    return x._rewrapped(values)


def _placed(x, dim):
    """A dimension of the nested tensor as one of its values, which have no batch."""
    rank = x.dim()
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % rank - 1


def _outer_to_inner_dim(ndim, dim, ragged_dim, canonicalize=False):
    """Dimensions of a nested tensor as those of its values, where batch and ragged dimension are one."""
    if isinstance(dim, (list, tuple)):
        return type(dim)(dict.fromkeys(_outer_to_inner_dim(ndim, d, ragged_dim, canonicalize) for d in dim))
    if canonicalize:
        dim %= ndim
    if not 0 <= dim < ndim:
        raise AssertionError(f"dim must be in range [0, {ndim}), but got {dim}")
    return ragged_dim - 1 if dim == 0 else dim - 1


def _check_contiguous(name, x):
    if x._lengths is not None or x._ragged != 1:
        raise ValueError(f"{name}(): expected self to be a contiguous jagged layout NestedTensor")


def _argument(args, kwargs, at, name, default=None):
    return args[at] if len(args) > at else kwargs.get(name, default)


@_rule("linear")
def _linear(func, args, kwargs):
    x = args[0]
    if not isinstance(x, NestedTensor) or x._ragged == x.dim() - 1:
        return NotImplemented
    return _weighted(x, func(x.values(), *args[1:], **kwargs))


@_rule("matmul", "__matmul__", "bmm")
def _matmul(func, args, kwargs):
    a, b = args[0], args[1] if len(args) > 1 else kwargs.get("mat2", kwargs.get("other"))
    if isinstance(a, NestedTensor) and not isinstance(b, NestedTensor) and b.dim() == 2 and a._ragged < a.dim() - 1:
        return _weighted(a, a.values() @ b)
    if isinstance(a, NestedTensor) and not isinstance(b, NestedTensor) and b.dim() == a.dim() == 3 and len(a) == len(b):
        parts = [x @ y for x, y in zip(a.unbind(), b, strict=True)]
        return mica.stack(parts) if a._ragged == 2 else _like_rows(a, parts)
    if isinstance(a, NestedTensor) and isinstance(b, NestedTensor) and len(a) == len(b):
        parts = [x @ y for x, y in zip(a.unbind(), b.unbind(), strict=True)]
        return mica.stack(parts) if all(p.shape == parts[0].shape for p in parts) else _like_rows(a, parts)
    return NotImplemented


def _like_rows(x, parts):
    offsets = x._offsets
    if x._lengths is not None:  # the gaps between the sequences are gone
        offsets = mica.nn.functional.pad(x._lengths.cumsum(0), (1, 0))
    return jagged_view(mica.cat(parts, x._ragged - 1), offsets, None, x._ragged)


@_rule("layer_norm", "rms_norm")
def _layer_norm(func, args, kwargs):
    x, shape = args[0], _argument(args, kwargs, 1, "normalized_shape")
    if x.dim() <= 2:
        raise RuntimeError("layer_norm(): not supported for NestedTensor objects with 2 or fewer dimensions")
    if len(shape) >= x.dim():
        raise RuntimeError("layer_norm(): not supported when normalizing over the batch dimension for NestedTensor")
    if len(shape) > x.dim() - x._ragged - 1:
        if x._lengths is not None:
            raise RuntimeError(
                "layer_norm(): not supported where lengths is not None if operating on the ragged dimension for NestedTensor"
            )
        if not isinstance(shape[x._ragged - x.dim() + len(shape)], NestedInt):
            raise RuntimeError(
                "layer_norm(): not supported when normalizing over the ragged dimension for NestedTensor"
            )
        rest = {k: v for k, v in kwargs.items() if k != "normalized_shape"}
        return _like_rows(x, [func(part, part.shape[-len(shape) :], *args[2:], **rest) for part in x.unbind()])
    return _weighted(x, func(x.values(), *args[1:], **kwargs))


@_rule("scaled_dot_product_attention")
def _attention(func, args, kwargs):
    q, k, v = (args + tuple(kwargs.pop(n) for n in ("query", "key", "value") if n in kwargs))[:3]
    if not all(isinstance(x, NestedTensor) for x in (q, k, v)):
        raise RuntimeError("scaled_dot_product_attention(): query, key and value must all be nested tensors")
    if _argument(args, kwargs, 3, "attn_mask") is not None:
        raise RuntimeError("scaled_dot_product_attention(): attn_mask is not supported for nested tensors")
    if not len(q) == len(k) == len(v):
        raise RuntimeError("scaled_dot_product_attention(): query, key and value must have as many sequences")
    # Computes one sequence at a time, so that nothing is spent on padding.
    parts = [func(*(x.unsqueeze(0) for x in trio), *args[3:], **kwargs).squeeze(0)
             for trio in zip(q.unbind(), k.unbind(), v.unbind(), strict=True)]  # fmt: skip
    return _like_rows(q, parts)


@_rule("size")
def _size(func, args, kwargs):
    sizes, dim = args[0]._sizes(), _argument(args, kwargs, 1, "dim")
    return sizes if dim is None else sizes[dim]


@_rule("is_contiguous")
def _is_contiguous(func, args, kwargs):
    return args[0]._lengths is None and args[0].values().is_contiguous(**kwargs)


@_rule("stride")
def _stride(func, args, kwargs):
    return (math.nan, *args[0].values().stride())


@_rule("backward", "register_hook", "retain_grad", "is_same_size")
def _on_values(func, args, kwargs):
    return func(args[0].values(), *[x.values() if isinstance(x, NestedTensor) else x for x in args[1:]], **kwargs)


@_rule("equal")
def _equal(func, args, kwargs):
    a, b = args
    both = isinstance(a, NestedTensor) and isinstance(b, NestedTensor)
    return both and a._ragged == b._ragged and _same_lengths(a, b) and mica.equal(a.values(), b.values())


def _attribute(func, x):
    name = func.__self__.__name__
    if name == "shape":
        return x._sizes()
    if name == "ndim":
        return x.dim()
    if name == "layout":
        return mica.jagged
    if name in ("grad", "requires_grad", "is_leaf", "grad_fn"):
        with _C.DisableTorchFunctionSubclass():
            found = func(x)
            found = found.as_subclass(Tensor) if name == "grad" and found is not None else found
        return x._rewrapped(found) if name == "grad" and found is not None else found
    if name in ("T", "mT", "H", "mH"):
        return x.transpose(-2, -1)
    found = func(x.values())
    return x._rewrapped(found) if isinstance(found, Tensor) and name in ("data", "real", "imag") else found


def call(func, args, kwargs):
    name = own_name(func)
    if name == "__get__":
        return _attribute(func, args[0])
    if name == "__set__":
        with _C.DisableTorchFunctionSubclass():
            return func(args[0], args[1].values() if isinstance(args[1], NestedTensor) else args[1])
    if name in _RULES:
        result = _RULES[name](func, args, kwargs)
        if result is not NotImplemented:
            return result
    elif name in _POINTWISE:
        return _pointwise(func, args, kwargs)
    elif name in _IN_PLACE:
        _pointwise(func, args, kwargs)
        return args[0]
    elif name == "requires_grad_":
        with _C.DisableTorchFunctionSubclass():
            func(*args, **kwargs)
        return args[0]
    elif name in _SAME:
        x = args[0]
        return x._rewrapped(func(x.values(), *args[1:], **kwargs))
    elif name in ("__repr__", "__str__", "__format__"):
        return repr(args[0])
    raise NotImplementedError(f"{name} is not implemented for nested tensors of the jagged layout")


answer_with(call)
