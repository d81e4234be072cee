"""Rules for views, for joining and splitting, and for indexing."""

import mica
from mica import _C
from mica.func._batch_dims import many_dims, one_dim, padded
from mica.func._batched import Plain, check_first_is_batched, rule

Tensor = _C.Tensor


def _sizes(args, kwargs, name="size"):
    """Sizes given as a list or one by one."""
    if name in kwargs:
        return list(kwargs[name])
    if len(args) == 1 and not isinstance(args[0], int):
        return list(args[0])
    return list(args)


@rule("reshape", "view")
def _reshape(call):
    value, rest = call.value(call.args[0]), call.rest()
    if len(rest) == 1 and isinstance(rest[0], _C.dtype):
        return value.view(rest[0])
    kwargs = {k: v for k, v in call.kwargs.items() if k not in ("shape", "size")}
    sizes = _sizes(rest, call.kwargs, "shape" if "shape" in call.kwargs else "size")
    if -1 in sizes and value.shape[0] == 0:
        known = 1
        for s in sizes:
            known *= s if s != -1 else 1
        sizes[sizes.index(-1)] = value.shape[1:].numel() // max(known, 1)
    return call.func(value, (value.shape[0], *sizes), **kwargs)


@rule("view_as", "reshape_as", "expand_as")
def _like(call):
    first, other = call.args[0], call.args[1]
    method = getattr(first, call.name.removesuffix("_as"))
    return Plain(method(other.shape))


@rule("expand", "broadcast_to")
def _expand(call):
    value = call.value(call.args[0])
    sizes = _sizes(call.rest(), call.kwargs)
    missing = len(sizes) - (value.dim() - 1)
    if missing > 0:
        value = value.reshape(value.shape[:1] + (1,) * missing + value.shape[1:])
    return value.expand(value.shape[0], *sizes)


@rule("repeat", "tile")
def _repeat(call):
    value = call.value(call.args[0])
    counts = _sizes(call.rest(), call.kwargs, "repeats" if call.name == "repeat" else "dims")
    rank = value.dim() - 1
    if call.name == "tile":
        counts = [1] * (rank - len(counts)) + counts
    if len(counts) > rank:
        value = value.reshape(value.shape[:1] + (1,) * (len(counts) - rank) + value.shape[1:])
    return value.repeat(1, *counts)


@rule("transpose", "swapaxes", "swapdims")
def _transpose(call):
    value = call.value(call.args[0])
    rank = value.dim() - 1
    first = call.argument(1, "dim0", call.kwargs.get("axis0"))
    second = call.argument(2, "dim1", call.kwargs.get("axis1"))
    return value if rank == 0 else value.transpose(one_dim(first, rank), one_dim(second, rank))


@rule("t")
def _t(call):
    value = call.value(call.args[0])
    return value if value.dim() < 3 else value.transpose(1, 2)


@rule("adjoint")
def _adjoint(call):
    return call.value(call.args[0]).adjoint()


@rule("permute")
def _permute(call):
    value = call.value(call.args[0])
    dims = _sizes(call.rest(), call.kwargs, "dims")
    return value.permute(0, *many_dims(dims, value.dim() - 1))


@rule("movedim", "moveaxis")
def _movedim(call):
    value = call.value(call.args[0])
    rank = value.dim() - 1
    source = call.argument(1, "source")
    target = call.argument(2, "destination")
    return value.movedim(many_dims(source, rank), many_dims(target, rank))


@rule("unsqueeze")
def _unsqueeze(call):
    value = call.value(call.args[0])
    return value.unsqueeze(one_dim(call.argument(1, "dim"), value.dim()))


@rule("squeeze")
def _squeeze(call):
    value = call.value(call.args[0])
    rank = value.dim() - 1
    dim = call.argument(1, "dim")
    dims = range(1, rank + 1) if dim is None else many_dims(dim, rank)
    dims = [dims] if isinstance(dims, int) else dims
    dims = [d for d in dims if d <= rank and value.shape[d] == 1]
    return value.squeeze(tuple(dims)) if dims else value.view_as(value)


@rule("flatten", "ravel")
def _flatten(call):
    value = call.value(call.args[0])
    rank = value.dim() - 1
    if rank == 0:
        return value.unsqueeze(1)
    start = one_dim(call.argument(1, "start_dim", 0), rank)
    end = one_dim(call.argument(2, "end_dim", -1), rank)
    return value.flatten(start, end)


@rule("unflatten")
def _unflatten(call):
    value = call.value(call.args[0])
    return value.unflatten(one_dim(call.argument(1, "dim"), value.dim() - 1), call.argument(2, "sizes"))


@rule("select", "narrow", "unfold", "split", "chunk", "tensor_split", "unbind", "split_with_sizes", "unsafe_split",
      "unsafe_chunk", "repeat_interleave", "roll")  # fmt: skip
def _with_dim(call):
    """A dimension that is an argument like any other."""
    if not call.is_batched(call.args[0]) or any(call.is_batched(x) for x in call.rest()):
        return NotImplemented
    value = call.value(call.args[0])
    rank = value.dim() - 1
    at, name, default = {
        "select": (1, "dim", None),
        "narrow": (1, "dim", None),
        "unfold": (1, "dimension", None),
        "unbind": (1, "dim", 0),
        "roll": (2, "dims", None),
        "repeat_interleave": (2, "dim", None),
    }.get(call.name, (2, "dim", 0))
    args, kwargs = list(call.args), dict(call.kwargs)
    dim = args[at] if at < len(args) else kwargs.get(name, default)
    if dim is None or rank == 0:
        return NotImplemented
    args[0] = value
    if at < len(args):
        args[at] = many_dims(dim, rank)
    else:
        kwargs[name] = many_dims(dim, rank)
    return call.func(*args, **kwargs)


@rule("diagonal", "diag_embed")
def _diagonal(call):
    value = call.value(call.args[0])
    embeds = call.name == "diag_embed"
    rank = value.dim() - 1 + embeds
    first = call.argument(2, "dim1", -2 if embeds else 0)
    second = call.argument(3, "dim2", -1 if embeds else 1)
    offset = call.argument(1, "offset", 0)
    return getattr(value, call.name)(offset=offset, dim1=one_dim(first, rank), dim2=one_dim(second, rank))


@rule("diagonal", space="linalg")
def _linalg_diagonal(call):
    value = call.value(call.args[0])
    rank = value.dim() - 1
    dims = {name: one_dim(call.kwargs.get(name, d), rank) for name, d in (("dim1", -2), ("dim2", -1))}
    return value.diagonal(offset=call.kwargs.get("offset", 0), **dims)


@rule("as_strided")
def _as_strided(call):
    value = call.value(call.args[0])
    size, stride, offset = (call.argument(i, n) for i, n in ((1, "size"), (2, "stride"), (3, "storage_offset")))
    start = value.storage_offset() + (offset or 0)  # an example's own memory begins where it does
    return value.as_strided((value.shape[0], *size), (value.stride(0), *stride), start)


@rule("diag")
def _diag(call):
    value = call.value(call.args[0])
    offset = call.argument(1, "diagonal", 0)
    if value.dim() == 2:
        return value.diag_embed(offset=offset)
    return value.diagonal(offset=offset, dim1=1, dim2=2)


@rule("__iter__")
def _iter(call):
    return Plain(iter(call.args[0].unbind(0)))


# ------------------------------------------------------------------------------------------------ joining
@rule("cat", "concat", "concatenate", "stack")
def _join(call):
    tensors = call.argument(0, "tensors")
    dim = call.argument(1, "dim", call.kwargs.get("axis", 0))
    rank = tensors[0].dim() + (call.name == "stack")
    if call.name != "stack" and any(x.dim() != rank for x in tensors):
        return NotImplemented
    values = [call.full(x) for x in tensors]
    return mica.stack(values, one_dim(dim, rank)) if call.name == "stack" else mica.cat(values, one_dim(dim, rank))


@rule("broadcast_tensors")
def _broadcast_tensors(call):
    tensors = call.args[0] if len(call.args) == 1 and not isinstance(call.args[0], Tensor) else call.args
    shape = mica.broadcast_shapes(*(x.shape for x in tensors))
    return Plain(tuple(x.expand(shape) for x in tensors))


@rule("atleast_1d", "atleast_2d", "atleast_3d", "hstack", "vstack", "dstack", "column_stack", "meshgrid", "block_diag",
      "cartesian_prod")  # fmt: skip
def _by_example(call):
    return NotImplemented


# ------------------------------------------------------------------------------------------------ indexing
@rule("index_select")
def _index_select(call):
    first, dim, index = (call.argument(i, name) for i, name in enumerate(("input", "dim", "index")))
    rank = first.dim()
    if not call.is_batched(index):
        return call.value(first).index_select(one_dim(dim, rank), index) if rank else NotImplemented
    if rank == 0 or index.dim() == 0:
        return NotImplemented
    value, where = call.full(first), call.value(index)
    at = one_dim(dim, rank)
    shape = list(value.shape)
    shape[at] = where.shape[1]
    view = [1] * value.dim()
    view[0], view[at] = where.shape
    return value.gather(at, where.view(view).expand(shape))


@rule("gather", "scatter", "scatter_add", "scatter_reduce", "take_along_dim", "index_add", "index_copy", "index_fill")
def _gather(call):
    args, kwargs = list(call.args), dict(call.kwargs)
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    rank = args[0].dim()
    by_rows = call.name.startswith("index_")
    if by_rows and any(call.is_batched(x) for x in args[2:3]):
        return NotImplemented
    if rank == 0 or any(x.dim() != rank for x in tensors if not (by_rows and x is not args[0])):
        return NotImplemented
    at, name = (2, "dim") if call.name == "take_along_dim" else (1, "dim")
    dim = args[at] if at < len(args) else kwargs.get(name)
    if dim is None:
        return NotImplemented
    if at < len(args):
        args[at] = one_dim(dim, rank)
    else:
        kwargs[name] = one_dim(dim, rank)
    keep = args[2] if by_rows else None
    args = [x if x is keep else call.full(x) for x in args]
    kwargs = {k: call.full(x) for k, x in kwargs.items()}
    if by_rows and any(isinstance(x, Tensor) and x.dim() != rank + 1 for x in args[3:]):
        return NotImplemented
    return call.func(*args, **kwargs)


@rule("scatter_", "scatter_add_", "scatter_reduce_")
def _scatter_in_place(call):
    check_first_is_batched(call)
    rank = call.args[0].dim()
    tensors = [x for x in (*call.args, *call.kwargs.values()) if isinstance(x, Tensor)]
    if rank == 0 or len(call.args) < 2 or any(x.dim() != rank for x in tensors):
        return NotImplemented
    args = [call.full(x) for x in call.args]
    args[1] = one_dim(args[1], rank)
    call.func(*args, **{k: call.full(x) for k, x in call.kwargs.items()})
    return Plain(call.args[0])


def _is_advanced(i):
    return isinstance(i, (Tensor, list)) or (hasattr(i, "__array__") and not isinstance(i, (int, float)))


def _stands_for_tuple(index):
    """Whether a list is taken for a tuple: old programs index with one that holds other things than numbers."""
    parts = (type(None), type(...), slice, Tensor, list, tuple)
    return isinstance(index, list) and len(index) < 32 and any(isinstance(part, parts) for part in index)


def _plain_index(index):
    """The index as a tuple, if its advanced parts, if any, stand side by side and no part is boolean."""
    index = tuple(index) if isinstance(index, tuple) or _stands_for_tuple(index) else (index,)
    places = [i for i, part in enumerate(index) if _is_advanced(part)]
    if any(isinstance(part, bool) for part in index):
        return None
    if any(isinstance(index[i], Tensor) and index[i].dtype in (_C.bool, _C.uint8) for i in places):
        return None
    if places and places != list(range(places[0], places[-1] + 1)):
        return None
    return index


@rule("__getitem__")
def _getitem(call):
    first, index = call.args
    index = _plain_index(index)
    if index is None:
        return NotImplemented
    batched = [i for i, part in enumerate(index) if call.is_batched(part)]
    if not batched:
        return call.value(first)[(slice(None), *index)]
    advanced = [part for part in index if _is_advanced(part)]
    if len(advanced) != len(batched) or len(advanced) != 1:
        return NotImplemented
    at = batched[0]
    if any(part is Ellipsis or part is None for part in index[:at]):
        return NotImplemented
    before = index[:at]
    where = call.value(index[at])
    if any(isinstance(part, int) for part in before):
        return NotImplemented
    value = call.full(first)
    value = value[(slice(None), *before)]
    # One number of the batch goes with each index: the batch and the indexed dimension move to the front together.
    rank = where.dim() - 1
    batch = mica.arange(call.size, device=where.device).view(-1, *[1] * rank)
    value = value.movedim(at + 1, 1)[batch, where]
    rest = index[at + 1 :]
    value = value.movedim(tuple(range(1, 1 + rank)), tuple(range(1 + at, 1 + at + rank))) if at and rank else value
    return value[(slice(None), *[slice(None)] * (at + rank), *rest)] if rest else value


@rule("__setitem__")
def _setitem(call):
    first, index, new = call.args
    if not call.is_batched(first):
        check_first_is_batched(call)
    index = _plain_index(index)
    if index is None or any(call.is_batched(part) for part in index):
        return NotImplemented
    call.level.changed = True
    target = (slice(None), *index)
    value = call.value(first)
    if call.is_batched(new):
        rank = value[target].dim() - 1
        while new.dim() > rank and new.shape[0] == 1:
            new = new.squeeze(0)
        new = padded(call, new, rank)
    value[target] = new
    return Plain(None)
