"""Operators over some dimensions of a tensor."""

from mica.distributed.tensor._rules.call import REPLICATE
from mica.distributed.tensor.placement_types import Partial, Shard, _NormPartial

_SUM = Partial("sum")


def dims_of(call, ndim):
    """The dimensions that the call names, counted from the first; all if it names none."""
    for name in ("dim", "dims", "axis"):
        if name in call.values:
            given = call.values[name]
            if given is None or given == []:
                return set(range(ndim))
            return {d % ndim if ndim else 0 for d in (given if isinstance(given, (list, tuple)) else [given])}
    return set(range(ndim))


def _kept(call, dims, ndim):
    """Options along dimensions that stay."""
    keep = call.values.get("keepdim", False)
    for d in range(ndim):
        if d not in dims:
            place = d if keep else d - sum(1 for each in dims if each < d)
            yield (Shard(place),) * call.outputs, (Shard(d),)


def _parts_are_full(size, count):
    return size > (count - 1) * -(-size // count)


def reduce(call, kind="whole"):
    """reduce [sum | avg | max | min | product | whole]: how parts of what is reduced combine; whole: they do not."""
    ndim = len(call.shapes[0])
    dims = dims_of(call, ndim)
    yield from _kept(call, dims, ndim)
    yield call.replicated()
    for d in dims if ndim else ():
        size = call.shapes[0][d]
        if kind == "sum":
            yield (_SUM,), (Shard(d),)
        elif kind == "avg" and size % call.count == 0 and size:
            yield (Partial("avg"),), (Shard(d),)
        elif kind in ("max", "min", "product") and not call.needs_gradient and _parts_are_full(size, call.count):
            yield (Partial(kind),), (Shard(d),)
    if kind in ("sum", "avg") and call.metas[0].dtype.is_floating_point:
        yield (_SUM,), (_SUM,)


def norm(call, argument="ord"):
    """norm ARGUMENT: the argument has its order."""
    ndim = len(call.shapes[0])
    dims = dims_of(call, ndim)
    yield from _kept(call, dims, ndim)
    yield call.replicated()
    order = call.values.get(argument)
    order = 2.0 if order is None else order
    if call.needs_gradient or isinstance(order, str) or len(call.specs) != 1:
        return
    for d in dims:
        if order not in (float("inf"), float("-inf")) or _parts_are_full(call.shapes[0][d], call.count):
            yield (_NormPartial("sum", float(order)),), (Shard(d),)


def along(call):
    """along: results have the sizes of the input but for the dimensions that are named, which are not split."""
    ndim = len(call.shapes[0])
    dims = dims_of(call, ndim)
    for d in range(ndim):
        if d not in dims and all(shape[d] == call.shapes[0][d] for shape in call.shapes):
            yield (Shard(d),) * call.outputs, (Shard(d),) * len(call.specs)
    yield call.replicated()


def linear_along(call):
    """linear_along: as along, and a sum of terms stays one."""
    yield from along(call)
    yield call.same(_SUM)


def dot(call):
    """dot: the sum of the products of two vectors."""
    yield (_SUM,), (Shard(0), Shard(0))
    yield call.replicated()


def equal(call):
    """equal: a question to all elements of two tensors, which is answered alike on all processes."""
    import mica
    from mica import distributed

    def on_parts(plan):
        mesh = plan.mesh

        def run(args, kwargs):
            same = mica.tensor(int(call.func(*args, **kwargs)), device=args[0].device)
            for dim in range(mesh.ndim):
                distributed.all_reduce(same, distributed.ReduceOp.MIN, group=mesh.get_group(dim))
            return bool(same.item())

        return run

    call.replacement, call.differentiable = on_parts, False
    if call.shapes[0] == call.shapes[1]:
        for d in range(len(call.shapes[0])):
            yield (), (Shard(d), Shard(d))
    yield (), (REPLICATE, REPLICATE)


WORDS = {"reduce": reduce, "norm": norm, "along": along, "linear_along": linear_along, "dot": dot, "equal": equal}
