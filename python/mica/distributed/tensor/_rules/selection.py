"""Operators that pick elements by index."""

import mica
from mica.distributed.tensor._rules.call import REPLICATE
from mica.distributed.tensor._utils import compute_local_shape_and_global_offset
from mica.distributed.tensor.placement_types import Partial, Shard

_SUM = Partial("sum")


def index(call):
    """index: x[..., i, j]: dimensions without an index may be split, or the indices themselves."""
    ndim, out = len(call.shapes[0]), len(call.metas[0].shape)
    given = list(call.values["indices"])
    taken = [d for d, each in enumerate(given) if each is not None]
    shapes = call.shapes[1:]
    values = [each for each in given if each is not None]
    if any(each.dtype in (mica.bool, mica.uint8) for each in values):
        raise RuntimeError(f"{call.func}: the size of the result depends on values that are spread")
    wide = max(len(shape) for shape in shapes)
    together = taken == list(range(taken[0], taken[-1] + 1))
    front = taken[0] if together else 0  # where the dimensions of the indices are in the result
    for d in range(ndim):
        if d in taken:
            continue
        before = sum(1 for each in range(d) if each not in taken)
        place = before if before < front else before + wide
        yield (Shard(place),), (Shard(d), *(REPLICATE for _ in shapes))
    for d in range(wide):
        inputs = []
        for shape in shapes:
            own = d - (wide - len(shape))
            split = own >= 0 and shape[own] == call.metas[0].shape[front + d]
            inputs.append(Shard(own) if split else REPLICATE)
        if any(isinstance(each, Shard) for each in inputs) and front + d < out:
            yield (Shard(front + d),), (REPLICATE, *inputs)
    yield call.replicated()
    yield (_SUM,), (_SUM, *(REPLICATE for _ in shapes))


def index_select(call):
    """index_select: all dimensions but the one that is picked from, or the index."""
    ndim = len(call.shapes[0])
    dim = call.values["dim"] % ndim if ndim else 0
    for d in range(ndim):
        if d != dim:
            yield (Shard(d),), (Shard(d), REPLICATE)
    if len(call.shapes[1]) == 1 and ndim:
        yield (Shard(dim),), (REPLICATE, Shard(0))
    yield call.replicated()
    yield (_SUM,), (_SUM, REPLICATE)


def gather(call):
    """gather: dimensions that the tensor and the index share, but the one that is picked from."""
    ndim = len(call.shapes[0])
    dim = call.values["dim"] % ndim if ndim else 0
    for d in range(ndim):
        if d != dim and call.shapes[0][d] == call.shapes[1][d]:
            yield (Shard(d),), (Shard(d), Shard(d))
    if ndim:
        yield (Shard(dim),), (REPLICATE, Shard(dim))
    yield call.replicated()
    yield (_SUM,), (_SUM, REPLICATE)


def scatter(call):
    """scatter: dimensions that all tensors share, but the one that is written along."""
    ndim = len(call.shapes[0])
    dim = call.values["dim"] % ndim if ndim else 0
    for d in range(ndim):
        if d != dim and all(len(s) == ndim and s[d] == call.shapes[0][d] for s in call.shapes):
            yield (Shard(d),), (Shard(d),) * len(call.shapes)
    yield call.replicated()


def index_along(call):
    """index_along: index_add and its like: dimensions but the one that the index is for."""
    ndim = len(call.shapes[0])
    dim = call.values["dim"] % ndim if ndim else 0
    for d in range(ndim):
        if d != dim:
            yield (
                (Shard(d),),
                tuple(Shard(d) if len(s) == ndim and i != 1 else REPLICATE for i, s in enumerate(call.shapes)),
            )
    yield call.replicated()


def _from_rows(plan):
    """embedding of the rows that this process has: what others have is zero, a term of a sum."""
    weight = plan.call.specs[0]
    (length, *_), (start, *_) = compute_local_shape_and_global_offset(weight.shape, plan.mesh, plan.inputs[0])

    def run(args, kwargs):
        table, indices, *rest = args
        values = dict(zip(("padding_idx", "scale_grad_by_freq", "sparse"), rest, strict=False)) | kwargs
        outside = (indices < start) | (indices >= start + length)
        mine = mica.where(outside, 0, indices - start)
        padding = values.get("padding_idx", -1)
        values["padding_idx"] = padding - start if start <= padding < start + length else -1
        if length == 0:
            return table.sum() + table.new_zeros((*indices.shape, table.shape[1]))
        rows = mica.ops.aten.embedding.default(table, mine, **values)
        return rows.masked_fill(outside.unsqueeze(-1), 0)

    return run


def embedding(call):
    """embedding: the table by columns, the indices in any way, or the table by rows, which makes terms of a sum."""
    indices = len(call.shapes[1])
    call.replacement = lambda plan: _from_rows(plan) if Shard(0) in plan.inputs[0] else None
    for d in range(indices):
        yield (Shard(d),), (REPLICATE, Shard(d))
    yield (Shard(indices),), (Shard(1), REPLICATE)
    if not call.values.get("scale_grad_by_freq"):
        yield (_SUM,), (Shard(0), REPLICATE)
    yield call.replicated()


def one_hot(call):
    """one_hot: the classes are not split."""
    for d in range(len(call.shapes[0])):
        yield (Shard(d),), (Shard(d),)
    yield call.replicated()


WORDS = {
    "index": index, "index_select": index_select, "gather": gather, "scatter": scatter, "index_along": index_along,
    "embedding": embedding, "one_hot": one_hot,
}  # fmt: skip
