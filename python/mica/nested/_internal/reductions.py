"""Sums, means and bounds of nested tensors: over all, over plain dimensions, or over each sequence."""

import math

import mica
from mica.nested._internal.ops import _argument, _like_rows, _outer_to_inner_dim, _placed, _rule


def _together(x):
    """All elements of the sequences: the values, without gaps."""
    return x.values() if x._lengths is None else mica.cat([p.flatten() for p in x.unbind()])


@_rule(
    "softmax", "log_softmax", "sum", "mean", "amax", "amin", "logsumexp", "prod", "any", "all", "var", "std", "norm_"
)
def _along(func, args, kwargs):
    x, name = args[0], func.__name__
    dim = _argument(args, kwargs, 1, "dim")
    if dim is None:
        return func(_together(x), **{k: v for k, v in kwargs.items() if k != "dim"})
    dims = [dim] if isinstance(dim, int) else list(dim)
    places = [_placed(x, d) for d in dims]
    rest = args[2:]
    kwargs = {k: v for k, v in kwargs.items() if k != "dim"}
    _check_reduced(x, name, places)
    if -1 in places:
        kept = (rest and rest[0] is True) or kwargs.get("keepdim", False)
        inner = _outer_to_inner_dim(x.dim(), dims, x._ragged, canonicalize=True)
        result = func(x.values(), inner, *rest, **kwargs)
        return result.unsqueeze(0) if kept else result
    if x._ragged - 1 not in places:
        values = func(x.values(), places if not isinstance(dim, int) else places[0], *rest, **kwargs)
        kept = (rest and rest[0] is True) or kwargs.get("keepdim", False)
        before = sum(p < x._ragged - 1 for p in places) if not kept and name not in ("softmax", "log_softmax") else 0
        return x._rewrapped(values, x._ragged - before)
    parts = [func(p, places if not isinstance(dim, int) else places[0], *rest, **kwargs) for p in x.unbind()]
    return _like_rows(x, parts) if name in ("softmax", "log_softmax") else mica.stack(parts)


def _check_reduced(x, name, places):
    """Refuse what torch refuses, in its words. `places` are dimensions of the values, -1 for the batch."""
    ragged = x._ragged - 1 in places
    if name in ("softmax", "log_softmax"):
        if -1 in places:
            raise RuntimeError(f"{name}(): not supported when reducing across the batch dimension for NestedTensor")
        if ragged and name == "log_softmax":
            raise RuntimeError("log_softmax(): not supported when reducing along the ragged dimension for NestedTensor")
        if ragged and x._ragged > 1:
            raise RuntimeError(
                "softmax(): not supported when reducing along the ragged dimension for ragged_idx > 1 for NestedTensor"
            )
        if ragged and x._lengths is not None:
            raise RuntimeError(
                "softmax(): not supported where lengths is not None if reducing across the ragged dimension for NestedTensor"
            )
        return
    if ragged and x._lengths is not None:
        raise RuntimeError(
            f"{name}(): reducing across the ragged dimension is not supported for non-contiguous nested tensors with holes"
        )
    if ragged and -1 not in places and len(places) > 1:
        raise RuntimeError(
            f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors"
        )
    if -1 in places and not ragged:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for NestedTensor"
        )


@_rule("nansum", "nanmean")
def _without_nan(func, args, kwargs):
    """Sums and means without NaN, made of sums as in torch."""
    x, rest = args[0], args[1:]
    dtype = kwargs.pop("dtype", None)
    total = mica.sum(mica.nan_to_num(x, 0.0, math.inf, -math.inf), *rest, **kwargs)
    if func.__name__ == "nanmean":
        total = total / mica.sum(mica.logical_not(mica.isnan(x)), *rest, **kwargs)
    return total if dtype is None else total.to(dtype)


@_rule("max", "min", "argmax", "argmin")
def _extreme(func, args, kwargs):
    """The largest or the smallest, or where it is; with two tensors the larger of each two."""
    x, name = args[0], func.__name__
    if len(args) > 1 and isinstance(args[1], mica.Tensor) and isinstance(x, mica.Tensor):
        return (mica.maximum if name == "max" else mica.minimum)(x, args[1])
    dim = _argument(args, kwargs, 1, "dim")
    if dim is None and x._lengths is not None and name in ("argmax", "argmin"):
        kept = mica.arange(x.values().numel(), device=x.device).reshape(x.values().shape)
        kept = x._rewrapped(kept)  # the place among the values, of which gaps are not asked
        return _together(kept)[func(_together(x))]
    if dim is None:
        return func(_together(x))
    at = _placed(x, dim)
    _check_reduced(x, name, [at])
    keepdim = _argument(args, kwargs, 2, "keepdim", False)
    if at == x._ragged - 1:
        found = [func(part, at, keepdim) for part in x.unbind()]
        pair = not isinstance(found[0], mica.Tensor)
        return type(found[0])(map(mica.stack, zip(*found, strict=True))) if pair else mica.stack(found)
    found = func(x.values(), at, keepdim)
    ragged = x._ragged - (at < x._ragged - 1 and not keepdim)
    if isinstance(found, mica.Tensor):
        return x._rewrapped(found, ragged)
    return type(found)(x._rewrapped(part, ragged) for part in found)
