"""Functions that change the shape of a nested tensor, or take parts of it."""

import math

import mica
from mica.nested._internal.nested_tensor import NestedTensor, _length_of, jagged_view
from mica.nested._internal.ops import _argument, _check_contiguous, _first, _placed, _rule, _same_lengths, _shown


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
    """Functions along dimensions other than the ragged one."""
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
    """The sequences in `chunks` groups of equal size, of which the last may have fewer."""
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
