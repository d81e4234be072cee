"""Operators from element to element."""

from mica.distributed.tensor._rules.call import REPLICATE
from mica.distributed.tensor.placement_types import Partial, Replicate, Shard

_SUM = Partial("sum")


def split_alike(call, shape=None):
    """Each dimension of the result in turn: inputs that have it are split along it, others are whole."""
    shape = call.metas[0].shape if shape is None else shape
    for d in range(len(shape)):
        inputs = []
        for mine in call.shapes:
            own = d - (len(shape) - len(mine))
            inputs.append(Shard(own) if own >= 0 and (mine[own] != 1 or shape[d] == 1) else REPLICATE)
        if not all(isinstance(each, Replicate) for each in inputs):
            yield (Shard(d),) * call.outputs, tuple(inputs)


def pointwise(call, kind=""):
    """pointwise [additive | scaled | product | quotient]: the last are the ways in which it keeps sums of terms."""
    if not call.metas or len(call.metas[0].shape) != max((len(s) for s in call.shapes), default=0):
        yield call.replicated()
        return
    yield from split_alike(call)
    yield call.replicated()
    yield from _terms(call, kind)


def _terms(call, kind):
    count = len(call.specs)
    outs = (_SUM,) * call.outputs
    if not call.metas[0].dtype.is_floating_point and not call.metas[0].dtype.is_complex:
        return
    if kind == "additive" and count > 1:
        yield outs, (_SUM,) * count
        yield call.same(Partial("avg"))
    elif kind in ("scaled", "product", "quotient") and count == 1:
        yield outs, (_SUM,)
        if call.in_place or not call.needs_gradient:
            yield call.same(call.now[0])
    elif kind == "scaled" and count == 2:  # copy_: the source is the tensor
        yield outs, (_SUM, _SUM)
    elif kind in ("product", "quotient") and count == 2:
        yield outs, (_SUM, REPLICATE)
        if kind == "product" and not call.in_place:
            yield outs, (REPLICATE, _SUM)
        if call.in_place and isinstance(call.now[0], Partial):
            yield outs if call.now[0] == _SUM else (call.now[0],), (call.now[0], REPLICATE)


def random(call, kind=""):
    """random: as pointwise; every process draws the numbers of the whole tensor and takes its own."""
    from mica.distributed.tensor._random import on_parts

    call.random = True
    call.replacement = on_parts
    yield from split_alike(call)
    yield call.replicated()


def alike(call, kind=""):
    """alike: a new tensor that lies as the given one, if it has its sizes; whole otherwise."""
    call.differentiable = False
    mine = call.now[0]
    names = {a.name for a in call.func._schema.arguments}
    if "size" in names:
        call.size_argument = "size"
    same = tuple(call.metas[0].shape) == call.shapes[0]
    if kind == "random":
        yield from random(call)
        return
    if isinstance(mine, Partial):
        yield (REPLICATE,), (mine,)
    elif same:
        yield call.same(mine)
    elif isinstance(mine, Shard):
        yield (REPLICATE,), (mine,)
    yield call.replicated()


def same(call):
    """same: the result is the tensor or a copy of it, so that all placements are kept."""
    call.differentiable = call.name != "detach"
    call.view = call.name in ("detach", "alias")
    yield call.same(call.now[0])


def filled(call):
    """filled: what is there is overwritten with one value."""
    call.differentiable = False
    yield call.same(call.now[0])


WORDS = {"pointwise": pointwise, "random": random, "alike": alike, "filled": filled, "same": same}
