"""Layers: normalisations, attention, convolutions, losses."""

import mica
from mica import distributed
from mica.distributed.tensor._rules.call import REPLICATE
from mica.distributed.tensor._rules.elementwise import split_alike
from mica.distributed.tensor.placement_types import Partial, Shard

_SUM = Partial("sum")


def rows(call):
    """rows: a norm over the last dimensions: those before them may be split, weights are whole."""
    ndim = len(call.shapes[0]) - len(call.values["normalized_shape"])
    for d in range(ndim):
        yield (Shard(d),) * call.outputs, (Shard(d), *(REPLICATE for _ in call.specs[1:]))
    yield call.replicated()


def batch(call):
    """batch: examples are split, weights are whole."""
    lead = 0 if len(call.shapes[0]) == len(call.metas[0].shape) else None
    if lead is not None and len(call.shapes[0]) > 2:
        yield (Shard(0),) * call.outputs, (Shard(0), *(REPLICATE for _ in call.specs[1:]))
    yield call.replicated()


def attention(call):
    """attention: examples and heads are split alike in queries, keys, values and a mask that has them."""
    if call.values.get("dropout_p"):
        raise NotImplementedError(f"{call.func}: dropout within attention of spread tensors is not in Mica")
    query, key, value = call.shapes[:3]
    for d in range(len(query) - 2):
        sizes = {query[d], key[d], value[d]}
        heads = d == len(query) - 3 and call.values.get("enable_gqa")
        if len(sizes) > 1 and not (heads and all(size % call.count == 0 for size in sizes)):
            continue
        inputs = [Shard(d)] * 3
        for shape in call.shapes[3:]:
            own = d - (len(query) - len(shape))
            inputs.append(Shard(own) if own >= 0 and shape[own] != 1 else REPLICATE)
        yield (Shard(d),), tuple(inputs)
    yield call.replicated()


# ---- losses

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def loss(call):
    """loss: element by element, then the sum or mean of all (the argument `reduction`)."""
    kind = _REDUCTIONS[call.values.get("reduction", 1)]
    if kind == "none":
        yield from split_alike(call)
        yield call.replicated()
        return
    shape = max(call.shapes, key=len)
    for _, inputs in split_alike(call, shape):
        d = next(p.dim + len(shape) - len(s) for p, s in zip(inputs, call.shapes, strict=True) if isinstance(p, Shard))
        if kind == "sum":
            yield (_SUM,), inputs
        elif shape[d] and shape[d] % call.count == 0:
            yield (Partial("avg"),), inputs
    yield call.replicated()


def _mean_of_all(plan):
    """The mean over the examples of all processes: each has its own sum over the weight of all."""
    func, mesh = plan.call.func, plan.mesh
    names = [a.name for a in func._schema.arguments]
    split = [i for i, placement in enumerate(plan.inputs[0]) if isinstance(placement, Shard)]

    def run(args, kwargs):
        values = dict(zip(names, args, strict=False)) | kwargs
        target, weight = values["target"], values.get("weight")
        with mica.no_grad():
            if target.is_floating_point():
                total = mica.tensor(float(target.numel() // max(target.shape[1], 1)), dtype=values["self"].dtype)
            else:
                counted = target != values.get("ignore_index", -100)
                total = counted.sum() if weight is None else weight[mica.where(counted, target, 0)].mul(counted).sum()
            total = total.to(device=values["self"].device, dtype=values["self"].dtype)
            for i in split:
                distributed.all_reduce(total, group=mesh.get_group(i))
        return func(**(values | {"reduction": 2})) / total

    return run


class _Summed(mica.autograd.Function):
    """The sum over processes of what all of them use in the same way: its gradient is each one's own."""

    @staticmethod
    def forward(ctx, tensor, groups):
        made = tensor.detach().clone()
        for group in groups:
            distributed.all_reduce(made, group=group)
        return made

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def _classes_split(plan):
    """Cross entropy of scores that are split by classes: only sums of one number for each example are exchanged."""
    from mica.distributed.tensor._utils import compute_local_shape_and_global_offset

    call, mesh = plan.call, plan.mesh
    names = [a.name for a in call.func._schema.arguments]
    dim = 1 if len(call.shapes[0]) > 1 else 0
    shape, offset = compute_local_shape_and_global_offset(call.shapes[0], mesh, plan.inputs[0])
    start, length = offset[dim], shape[dim]
    split = [i for i, placement in enumerate(plan.inputs[0]) if placement == Shard(dim)]
    examples = [i for i, placement in enumerate(plan.inputs[0]) if isinstance(placement, Shard) and i not in split]

    def run(args, kwargs):
        values = dict(zip(names, args, strict=False)) | kwargs
        scores, target, weight = values["self"], values["target"], values.get("weight")
        groups = [mesh.get_group(i) for i in split]
        if call.name == "cross_entropy_loss":
            with mica.no_grad():
                most = scores.amax(dim, keepdim=True) if length else scores.new_full(_one(scores, dim), -float("inf"))
                for group in groups:
                    distributed.all_reduce(most, distributed.ReduceOp.MAX, group=group)
            scores = scores - most
            # On every process, so that each has its part of the gradient.
            total = _Summed.apply(scores.exp().sum(dim), groups).log()
        ignored = target == values.get("ignore_index", -100)
        mine = (target >= start) & (target < start + length) & ~ignored
        place = mica.where(mine, target - start, 0).unsqueeze(dim)
        picked = scores.gather(dim, place).squeeze(dim) if length else scores.sum(dim)
        losses = -_Summed.apply(mica.where(mine, picked, 0), groups)
        if call.name == "cross_entropy_loss":
            losses = mica.where(ignored, 0, losses + total)
        counted = (~ignored).to(losses.dtype)
        if weight is not None:
            counted = counted * weight[mica.where(ignored, 0, target)]
            losses = losses * counted
        kind = _REDUCTIONS[values.get("reduction", 1)]
        if kind == "none":
            return losses
        if kind == "sum":
            return losses.sum()
        number = counted.sum()
        for i in examples:
            distributed.all_reduce(number, group=mesh.get_group(i))
        return losses.sum() / number

    return run


def _one(tensor, dim):
    shape = list(tensor.shape)
    shape[dim] = 1
    return shape


def classes(call):
    """classes: scores (n, c, ...) and the class of each. Classes are split only within loss_parallel()."""
    from mica.distributed.tensor._rules import loss_is_parallel

    kind = _REDUCTIONS[call.values.get("reduction", 1)]
    dim = 1 if len(call.shapes[0]) > 1 else 0
    more = (REPLICATE,) * (len(call.specs) - 2)
    parallel = loss_is_parallel()

    def replacement(plan):
        if Shard(dim) in plan.inputs[0]:
            return _classes_split(plan)
        return _mean_of_all(plan) if kind == "mean" and any(isinstance(p, Shard) for p in plan.inputs[0]) else None

    call.replacement = replacement
    if len(call.shapes[0]) > 1:
        probabilities = len(call.shapes[1]) == len(call.shapes[0])
        for d in range(len(call.shapes[0])):
            if d != 1:
                own = d if probabilities or d == 0 else d - 1
                yield (Shard(own) if kind == "none" else _SUM,), (Shard(d), Shard(own), *more)
        if probabilities:
            parallel = False
    if parallel and call.now[0] == Shard(dim):
        if call.values.get("label_smoothing"):
            raise NotImplementedError("loss_parallel: label_smoothing is not in Mica for classes that are split")
        yield (REPLICATE,), (Shard(dim), REPLICATE, *more)
    yield call.replicated()


WORDS = {"rows": rows, "batch": batch, "attention": attention, "loss": loss, "classes": classes}
