"""Dimensions of an example as dimensions of its batch."""

from mica import _C


def align(call, tensors):
    """Batches with a place for each dimension of the widest example, so that they broadcast as the examples would."""
    rank = max(x.dim() for x in tensors)
    if any(x.dim() < rank for x in tensors):
        tensors = _of_one_dtype(call, tensors)
    return [padded(call, x, rank) for x in tensors]


def padded(call, x, rank):
    """A batch with dimensions of size one after the first, for examples of `rank` dimensions; others as they are."""
    value = call.value(x)
    if value is x or x.dim() >= rank:
        return value
    return value.reshape(value.shape[:1] + (1,) * (rank - x.dim()) + value.shape[1:])


def _of_one_dtype(call, tensors):
    """Examples without dimensions weigh less in the choice of a dtype; their batches have one, and would weigh as much."""
    numbers = [x for x in tensors if x.dim() == 0 and call.is_batched(x) and x.dtype != _C.bool]
    kinds = [(x.dim() > 0, x.dtype) for x in tensors if x.dtype != _C.bool]
    if not numbers or len(set(kinds)) <= 1:
        return tensors
    stand_ins = [_C.empty((1,) if wide else (), dtype=dtype) for wide, dtype in kinds]
    wide = [x for x in stand_ins if x.dim()]
    narrow = [x for x in stand_ins if not x.dim()]
    total = None
    for x in (*wide, *narrow):
        total = x if total is None else _C.empty((1,) if wide else (), dtype=_C.result_type(total, x))
    return [x.to(total.dtype) if any(x is n for n in numbers) else x for x in tensors]


def one_dim(dim, rank):
    """The dimension of the batch that is dimension `dim` of an example of `rank` dimensions."""
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim % bound + 1


def many_dims(dims, rank):
    return one_dim(dims, rank) if isinstance(dims, int) else [one_dim(d, rank) for d in dims]


def narrowed(result):
    """The result for an example without dimensions, which was given one to work along."""
    if isinstance(result, tuple):
        parts = [narrowed(part) for part in result]
        kind = type(result)
        return kind(*parts) if hasattr(kind, "_make") else kind(parts)
    return result.squeeze(1) if result.dim() > 1 else result


def along(call, position, *, default=None, many=False, needed=False, values_only=False):
    """An operation along a dimension, or several, of an example.

    Where none is named, the operation is over all of them: `many` takes a list, others see the example flattened.
    """
    value = call.value(call.args[0])
    rank = value.dim() - 1
    args, kwargs = list(call.args), dict(call.kwargs)
    by_name = "axis" if "axis" in kwargs else "dim"
    if call.name in ("flip",) and "dims" in kwargs:
        by_name = "dims"
    given = position < len(args)
    dim = args[position] if given else kwargs.get(by_name, default)
    if call.name == "flip" and given and isinstance(dim, int):
        dim, args = args[position:], args[: position + 1]
    whole = dim is None or (many and not isinstance(dim, int) and len(dim) == 0)
    if whole and needed:
        return NotImplemented
    if rank == 0:
        value = value.unsqueeze(1)
    if not whole:
        placed = many_dims(dim, rank)
    elif many:
        placed = list(range(1, max(rank, 1) + 1))
    else:
        value, placed = value.flatten(1), 1
    args[0] = value
    if given:
        args[position] = placed
    else:
        kwargs[by_name] = placed
    result = call.func(*args, **kwargs)
    if whole and values_only and isinstance(result, tuple):
        result = result[0]
    if call.name.endswith("_"):
        from mica.func._batched import Plain, check_first_is_batched

        check_first_is_batched(call)
        return Plain(call.args[0])
    return narrowed(result) if rank == 0 else result
