"""Rules for shapes in terms of other operations, on the examples themselves: joining, repeating, cutting, looking up."""

import mica
from mica import _C
from mica.func._batch_dims import one_dim
from mica.func._batch_rules_composed import composed
from mica.func._batched import RULES

Tensor = _C.Tensor


@composed("alias_copy")
def _alias_copy(input):
    return input.clone()


@composed("msort")
def _msort(input):
    return input.sort(0)[0] if input.dim() else input.clone()


@composed("real")
def _real(input):
    return mica.view_as_real(input).select(-1, 0) if input.is_complex() else input


@composed("imag")
def _imag(input):
    if not input.is_complex():
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return mica.view_as_real(input).select(-1, 1)


@composed("aminmax")
def _aminmax(input, *, dim=None, keepdim=False):
    if input.dim() == 0:
        return mica.return_types.aminmax((input.clone(), input.clone()))
    if dim is None:
        if keepdim:
            return NotImplemented
        return mica.return_types.aminmax((input.amin(), input.amax()))
    return mica.return_types.aminmax((input.amin(dim, keepdim), input.amax(dim, keepdim)))


def _each(tensors, function):
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return tuple(map(function, tensors[0]))
    found = tuple(map(function, tensors))
    return found[0] if len(found) == 1 else found


@composed("atleast_1d")
def _atleast_1d(*tensors):
    return _each(tensors, lambda x: x if x.dim() else x.reshape(1))


@composed("atleast_2d")
def _atleast_2d(*tensors):
    return _each(tensors, lambda x: x if x.dim() > 1 else x.reshape(1, -1))


@composed("atleast_3d")
def _atleast_3d(*tensors):
    def shaped(x):
        return x if x.dim() > 2 else x.unsqueeze(-1) if x.dim() == 2 else x.reshape(1, -1, 1)

    return _each(tensors, shaped)


@composed("meshgrid")
def _meshgrid(*tensors, indexing="ij"):
    given = _listed(tensors)
    sizes = [x.numel() for x in given]
    found = []
    for i, x in enumerate(given):
        shape = [1] * len(sizes)
        shape[i] = -1
        found.append(x.reshape(shape).expand(sizes))
    if indexing == "xy" and len(found) > 1:
        found = list(_meshgrid(given[1], given[0], *given[2:]))
        found[0], found[1] = found[1], found[0]
    return tuple(found)


@composed("cartesian_prod")
def _cartesian_prod(*tensors):
    given = _listed(tensors)
    if len(given) == 1:
        return given[0].clone()
    return mica.stack([x.reshape(-1) for x in _meshgrid(*given)], -1)


@composed("combinations")
def _combinations(input, r=2, with_replacement=False):
    import itertools

    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(choose(range(input.shape[0]), r))
    index = mica.tensor(places, dtype=mica.int64, device=input.device).reshape(len(places), r)
    return input.index_select(0, index.reshape(-1)).reshape(len(places), r)


@composed("block_diag")
def _block_diag(*tensors):
    blocks = [x.reshape(1, -1) if x.dim() < 2 else x for x in tensors]
    width, start, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(mica.nn.functional.pad(x, (start, width - start - x.shape[1])))
        start += x.shape[1]
    return mica.cat(rows)


def _listed(tensors):
    return tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors


@composed("hstack")
def _hstack(tensors):
    given = [_atleast_1d(x) for x in tensors]
    return mica.cat(given, 0 if given[0].dim() == 1 else 1)


@composed("vstack", "row_stack")
def _vstack(tensors):
    return mica.cat([_atleast_2d(x) for x in tensors])


@composed("dstack")
def _dstack(tensors):
    return mica.cat([_atleast_3d(x) for x in tensors], 2)


@composed("column_stack")
def _column_stack(tensors):
    return mica.cat([x.reshape(x.numel(), 1) if x.dim() < 2 else x for x in tensors], 1)


@composed("roll")
def _roll(input, shifts, dims=None):
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return input.reshape(-1).roll(shifts, 0).reshape(input.shape) if input.dim() else input.clone()
    return NotImplemented


@composed("repeat_interleave")
def _repeat_interleave(input, repeats, dim=None, *, output_size=None):
    if not isinstance(repeats, int):
        return NotImplemented
    if dim is None:
        input, dim = input.reshape(-1), 0
    if input.dim() == 0:
        return input.reshape(1).expand(repeats).clone()
    dim %= input.dim()
    sizes = list(input.shape)
    wide = input.unsqueeze(dim + 1).expand(*sizes[: dim + 1], repeats, *sizes[dim + 1 :])
    return wide.reshape(*sizes[:dim], sizes[dim] * repeats, *sizes[dim + 1 :])


@composed("slice")
def _slice(input, dim=0, start=None, end=None, step=1):
    return input[(slice(None),) * (dim % input.dim()) + (slice(start, end, step),)]


@composed("split_with_sizes_copy")
def _split_with_sizes_copy(input, split_sizes, dim=0):
    return tuple(part.clone() for part in input.split(list(split_sizes), dim))


@composed("sum_to_size")
def _sum_to_size(input, *size):
    size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    if mica.broadcast_shapes(size, input.shape) != input.shape:
        raise RuntimeError(f"size {{{list(size)}}} is not expandable to size {{{list(input.shape)}}}.")
    extra = input.dim() - len(size)
    dims = [d for d in range(input.dim()) if d >= extra and size[d - extra] == 1 and input.shape[d] != 1]
    found = input.sum(dims, keepdim=True) if dims else input
    return found.sum(list(range(extra))) if extra else found


@composed("unravel_index")
def _unravel_index(indices, shape):
    if isinstance(shape, Tensor):
        return NotImplemented
    found = []
    for size in reversed((shape,) if isinstance(shape, int) else tuple(shape)):
        found.append(indices % size)
        indices = indices.div(size, rounding_mode="floor")
    return tuple(reversed(found))


def _unfold(call):
    """The method, not the function of layers."""
    first, dim, size, step = (call.argument(i, name) for i, name in enumerate(("self", "dimension", "size", "step")))
    value, rank = call.value(first), first.dim()
    found = (value.unsqueeze(1) if rank == 0 else value).unfold(one_dim(dim, rank), size, step)
    found = found.squeeze(1) if rank == 0 else found
    return found.clone() if call.name == "unfold_copy" else found


RULES["unfold"] = RULES["unfold_copy"] = _unfold


@composed("bucketize")
def _bucketize(input, boundaries, *, out_int32=False, right=False):
    if not isinstance(input, Tensor):
        return NotImplemented
    found = mica.searchsorted(boundaries, input.reshape(-1), out_int32=out_int32, right=right)
    return found.reshape(input.shape)
