"""Elements and sequences of nested tensors that are chosen: read, written, looked up in tables."""

import mica
from mica.nested._internal.nested_tensor import NestedTensor, jagged_view
from mica.nested._internal.ops import _argument, _like_rows, _rule, _same_lengths, _shown, _weighted

Tensor = mica.Tensor


@_rule("__getitem__")
def _getitem(func, args, kwargs):
    x, index = args
    if isinstance(index, int):
        return x.unbind()[index]
    if isinstance(index, tuple) and index and isinstance(index[0], int):
        return x.unbind()[index[0]][index[1:]]
    if isinstance(index, tuple) and len(index) == 2 and index[0] is Ellipsis and x._ragged < x.dim() - 1:
        values = x.values()[index]
        return x._rewrapped(values)
    raise RuntimeError(
        "nested tensors are indexed by the number of a sequence first, or by [..., i] behind the ragged dim"
    )


@_rule("embedding")
def _embedding(func, args, kwargs):
    x, rest = args[0], args[1:]
    if not isinstance(x, NestedTensor):
        return NotImplemented
    return _weighted(x, func(x.values(), *rest, **kwargs))


@_rule("one_hot")
def _one_hot(func, args, kwargs):
    return args[0]._rewrapped(func(args[0].values(), *args[1:], **kwargs))


@_rule("embedding_bag")
def _embedding_bag(func, args, kwargs):
    """Each sequence is a bag."""
    x, weights = args[0], kwargs.get("per_sample_weights")
    if not isinstance(x, NestedTensor) or x.dim() != 2 or _argument(args, kwargs, 2, "offsets") is not None:
        raise RuntimeError("embedding_bag(): takes a nested tensor of two dimensions, whose sequences are the bags")
    rest = {k: v for k, v in kwargs.items() if k not in ("weight", "offsets", "per_sample_weights")}
    if isinstance(weights, NestedTensor):
        weights = _like_rows(weights, weights.unbind()).values()
    packed = x if x._lengths is None else _like_rows(x, x.unbind())
    rest |= {"offsets": packed._offsets[:-1], "per_sample_weights": weights}
    return func(packed.values(), _argument(args, kwargs, 1, "weight"), *[None] * (len(args) > 2), *args[3:], **rest)


@_rule("masked_select")
def _masked_select(func, args, kwargs):
    x, mask = args[0], _argument(args, kwargs, 1, "mask")
    if x.dim() > 2:
        raise RuntimeError("masked_select only support 2-D selections currently: it takes sequences of numbers")
    if not isinstance(mask, NestedTensor) or x._lengths is not None or not _same_lengths(x, mask):
        raise RuntimeError(
            f"Mask with shape {_shown(mask)} is not compatible with input's shape {_shown(x)}: both must be nested "
            "tensors of the same lengths, without gaps"
        )
    before = mica.nn.functional.pad(mask.values().cumsum(0), (1, 0))
    return jagged_view(x.values().masked_select(mask.values()), before[x._offsets])


@_rule("index_put", "index_put_", "__setitem__")
def _index_put(func, args, kwargs):
    """By the numbers of sequences and places in them; whole sequences by their numbers."""
    x, indices, rest = args[0], _argument(args, kwargs, 1, "indices"), args[2:]
    kwargs = {k: v for k, v in kwargs.items() if k != "indices"}
    indices = list(indices) if isinstance(indices, (tuple, list)) else [indices]
    whole = len(indices) == 1
    if not all(isinstance(i, Tensor) and not i.is_floating_point() and i.dtype != mica.bool for i in indices) or not (
        whole or x._ragged < len(indices) <= x.dim()
    ):
        raise RuntimeError(
            f"{func.__name__}(): a nested tensor is written by tensors of indices: of sequences, or of sequences and "
            "of places up to the ragged dimension at least"
        )
    sequences = indices[0]
    if bool(((sequences < -len(x)) | (sequences >= len(x))).any()):
        raise IndexError(f"index out of range for the {len(x)} sequences of a nested tensor")
    if whole:
        value = _argument(rest, kwargs, 0, "values")
        if x._ragged != 1 or x._lengths is not None or (isinstance(value, Tensor) and value.numel() != 1):
            raise RuntimeError(f"{func.__name__}(): whole sequences without gaps take one number")
        chosen = (x._owners().unsqueeze(1) == sequences.reshape(-1) % len(x)).any(1)
        return _written(func, x, [chosen.nonzero().squeeze(1)], rest, kwargs)
    own, at = x._each_length()[sequences], indices[x._ragged]
    if bool(((at < -own) | (at >= own)).any()):
        raise RuntimeError("Some indices in the ragged dimension are out of bounds!")
    places = x._offsets[:-1][sequences] + mica.where(at < 0, at + own, at)
    return _written(func, x, [*indices[1 : x._ragged], places, *indices[x._ragged + 1 :]], rest, kwargs)


def _written(func, x, indices, rest, kwargs):
    if func.__name__ == "__setitem__":
        x.values()[tuple(indices)] = rest[0]
        return None
    made = func(x.values(), tuple(indices), *rest, **kwargs)
    return x if func.__name__ == "index_put_" else x._rewrapped(made)
