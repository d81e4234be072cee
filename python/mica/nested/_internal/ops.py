"""What torch's functions do with nested tensors: on the values, where the ragged dimension does not matter."""

import math

import mica
from mica import _C
from mica._functions.families import own_name
from mica.func._batch_rules import POINTWISE
from mica.nested._internal.nested_tensor import NestedInt, NestedTensor, _length_of, answer_with, jagged_view

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
    """Where the values are those of a sequence and not of a gap, as it broadcasts with them."""
    places, owners = _C.arange(x.values().shape[x._ragged - 1], device=x._offsets.device), x._owners()
    behind = places - x._offsets[owners]
    inside = (behind >= 0) & (behind < x._lengths[owners])
    return inside.reshape([-1] + [1] * (x.dim() - x._ragged - 1))


def _weighted(x, values):
    """The result with weights that all sequences share: gaps give the weights no gradient."""
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


@_rule("transpose", "swapaxes")
def _transpose(func, args, kwargs):
    x = args[0]
    a, b = (_placed(x, _argument(args, kwargs, i, n)) for i, n in ((1, "dim0"), (2, "dim1")))
    if -1 in (a, b):
        raise ValueError("Transpose is not supported on the batch dimension for jagged NT")
    ragged = x._ragged - 1
    moved = b if ragged == a else a if ragged == b else ragged
    return x._rewrapped(x.values().transpose(a, b), moved + 1)


@_rule("permute")
def _permute(func, args, kwargs):
    x, dims = args[0], args[1:] or (kwargs["dims"],)
    dims = [_placed(x, d) + 1 for d in (dims if isinstance(dims[0], int) else dims[0])]
    if len(dims) != x.dim():
        raise ValueError(
            f"permute(): number of dimensions in the tensor input ({x.dim()}) does not match the length of the desired "
            f"ordering of dimensions ({len(dims)})."
        )
    if len(set(dims)) != len(dims):
        raise ValueError("permute(): duplicate dims are not allowed.")
    if dims[0] != 0:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT")
    return x._rewrapped(x.values().permute([d - 1 for d in dims[1:]]), dims.index(x._ragged))


@_rule("expand")
def _expand(func, args, kwargs):
    x, sizes = args[0], args[1:]
    sizes = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    length = _length_of(x._offsets)
    if len(sizes) != x.dim() or sizes[0] not in (-1, len(x)) or sizes[x._ragged] not in (-1, length):
        raise RuntimeError(f"expand(): cannot expand shape {_shown(x)} -> {tuple(sizes)}")
    return x._rewrapped(x.values().expand([-1 if d == x._ragged else sizes[d] for d in range(1, x.dim())]))


@_rule("unsqueeze", "squeeze")
def _unsqueeze(func, args, kwargs):
    x, dim = args[0], _argument(args, kwargs, 1, "dim")
    if dim is None:
        raise RuntimeError("squeeze(): a dim is needed for NestedTensor")
    if func.__name__ == "squeeze":
        _check_contiguous("squeeze", x)
    rank = x.dim() + (func.__name__ == "unsqueeze")
    at = dim % rank - 1
    if at < 0:
        raise RuntimeError(f"{func.__name__}(): not supported for NestedTensor on dim=0")
    if func.__name__ == "squeeze" and at == x._ragged - 1:
        raise RuntimeError("squeeze(): not supported for NestedTensor on ragged dim")
    shift = 1 if func.__name__ == "unsqueeze" else -1
    return x._rewrapped(func(x.values(), at), x._ragged + (shift if at < x._ragged else 0))


@_rule("unflatten", "flatten", "chunk", "split", "split_with_sizes", "narrow", "select", "cat", "flip", "unbind")
def _behind(func, args, kwargs):
    """Along dimensions that are not the ragged one."""
    name = func.__name__
    if name == "cat":
        parts, dim = args[0], _argument(args, kwargs, 1, "dim", 0)
        x = _first(parts)
        at = _placed(x, dim)
        if at < 0 or at == x._ragged - 1 or not all(isinstance(p, NestedTensor) and _same_lengths(x, p) for p in parts):
            raise RuntimeError(
                "cat(): only supported for NestedTensors of the same lengths, not along dim=0 or the ragged dim"
            )
        return x._rewrapped(mica.cat([p.values() for p in parts], at))
    x = args[0]
    if name == "unbind":
        return x.unbind(_argument(args, kwargs, 1, "dim", 0))
    if name == "flatten":
        start, end = (
            _placed(x, _argument(args, kwargs, i, n, d)) for i, n, d in ((1, "start_dim", 0), (2, "end_dim", -1))
        )
        if start < x._ragged:
            raise RuntimeError("flatten(): not supported for NestedTensor over the batch or the ragged dimension")
        return x._rewrapped(x.values().flatten(start, end))
    where, key = {"unflatten": (1, "dim"), "narrow": (1, "dim"), "select": (1, "dim"), "flip": (1, "dims")}.get(
        name, (2, "dim")
    )
    dim = _argument(args, kwargs, where, key, 0)
    if name in ("chunk", "split", "split_with_sizes", "narrow"):
        _check_contiguous(name, x)
    if name == "select" and dim % x.dim() == 0:
        return x.unbind()[_argument(args, kwargs, 2, "index")]
    at = _placed(x, dim[0] if isinstance(dim, (list, tuple)) else dim)
    if at < 0 and name == "chunk":
        return _batch_in_chunks(x, _argument(args, kwargs, 1, "chunks"))
    if at < 0 and name == "unflatten":
        raise RuntimeError(f"view(): cannot view shape {_shown(x)}: its batch dimension cannot be unflattened")
    if name == "split" and not isinstance(_argument(args, kwargs, 1, "split_size", 0), int):
        name = "split_with_sizes"
    if at < 0:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    if at == x._ragged - 1:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")
    args, kwargs = [x.values(), *args[1:]], dict(kwargs)
    if len(args) > where:
        args[where] = at
    else:
        kwargs[key] = at
    result = func(*args, **kwargs)
    shift = len(_argument(args, kwargs, 2, "sizes")) - 1 if name == "unflatten" else -1 if name == "select" else 0
    ragged = x._ragged + (shift if at < x._ragged - 1 else 0)
    return tuple(x._rewrapped(r, ragged) for r in result) if isinstance(result, tuple) else x._rewrapped(result, ragged)


def _batch_in_chunks(x, chunks):
    """The sequences in groups of as many, the last of fewer."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = -(-len(x) // chunks)
    made = []
    for first in range(0, len(x), size):
        offsets = x._offsets[first : first + size + 1]
        begin, end = offsets[0].item(), offsets[-1].item()
        values = x.values().narrow(x._ragged - 1, begin, end - begin)
        made.append(jagged_view(values, offsets - begin, None, x._ragged))
    return tuple(made)


@_rule("view", "reshape")
def _view(func, args, kwargs):
    x = args[0]
    sizes = list(args[1]) if len(args) == 2 and not isinstance(args[1], int) else list(args[1:])
    length = _length_of(x._offsets)
    if length not in sizes and -1 in sizes[1:]:  # the first -1 behind the batch is the ragged dimension
        sizes[sizes.index(-1, 1)] = length
    ragged = sizes.index(length) if length in sizes else 0
    stays = ragged and math.prod(sizes[1:ragged]) == math.prod(x.values().shape[: x._ragged - 1])
    if sizes[:1] not in ([len(x)], [-1]) or not stays or x._lengths is not None:
        raise RuntimeError(
            f"view(): cannot view shape {_shown(x)} as {tuple(sizes)}: batch and ragged dimensions must stay"
        )
    total = x.values().shape[x._ragged - 1]
    return x._rewrapped(x.values().reshape(*sizes[1:ragged], total, *sizes[ragged + 1 :]), ragged)


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
