"""Sums, means and bounds of nested tensors: over all, over plain dimensions, or over each sequence."""

import mica
from mica.nested._internal.nested_tensor import NestedTensor
from mica.nested._internal.ops import _argument, _like_rows, _placed, _rule


@_rule(
    "softmax", "log_softmax", "sum", "mean", "amax", "amin", "logsumexp", "prod", "any", "all", "var", "std", "norm_"
)
def _along(func, args, kwargs):
    x, name = args[0], func.__name__
    dim = _argument(args, kwargs, 1, "dim")
    if dim is None:
        parts = x.values() if x._lengths is None else mica.cat([p.flatten() for p in x.unbind()])
        return func(parts, **{k: v for k, v in kwargs.items() if k != "dim"})
    dims = [dim] if isinstance(dim, int) else list(dim)
    places = [_placed(x, d) for d in dims]
    rest = args[2:]
    kwargs = {k: v for k, v in kwargs.items() if k != "dim"}
    if -1 in places:
        if x._ragged - 1 not in places:
            raise RuntimeError(
                f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for "
                "NestedTensor"
            )
        if name in ("softmax", "log_softmax"):
            raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
        kept = (rest and rest[0] is True) or kwargs.get("keepdim", False)
        whole = x.values() if x._lengths is None else mica.cat(x.unbind(), x._ragged - 1)
        result = func(whole, [p for p in places if p >= 0], *rest, **kwargs)
        return result.unsqueeze(0) if kept else result
    if x._ragged - 1 not in places:
        values = func(x.values(), places if not isinstance(dim, int) else places[0], *rest, **kwargs)
        kept = (rest and rest[0] is True) or kwargs.get("keepdim", False)
        before = sum(p < x._ragged - 1 for p in places) if not kept and name not in ("softmax", "log_softmax") else 0
        return x._rewrapped(values, x._ragged - before)
    parts = [func(p, places if not isinstance(dim, int) else places[0], *rest, **kwargs) for p in x.unbind()]
    return _like_rows(x, parts) if name in ("softmax", "log_softmax") else mica.stack(parts)


@_rule("max", "min", "argmax", "argmin")
def _extreme(func, args, kwargs):
    """The largest or the smallest, or where it is; with two tensors the larger of each two."""
    x, name = args[0], func.__name__
    if len(args) > 1 and isinstance(args[1], NestedTensor):
        return (mica.maximum if name == "max" else mica.minimum)(x, args[1])
    dim = _argument(args, kwargs, 1, "dim")
    if dim is None:
        return func(x.values() if x._lengths is None else mica.cat([p.flatten() for p in x.unbind()]))
    at = _placed(x, dim)
    if at < 0:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for NestedTensor"
        )
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
