"""Operators that show the same elements in another shape."""

from mica.distributed.tensor.placement_types import Partial, Shard


def _mapped(call, places):
    """Options where each dimension of the input is one of the result's (None: it cannot be split)."""
    call.view = True
    for d, place in enumerate(places):
        if place is not None:
            yield (Shard(place),) * call.outputs, (Shard(d),)
    yield call.replicated()
    if isinstance(call.now[0], Partial):
        yield call.same(call.now[0])


def _wrapped(dim, ndim):
    return dim % ndim if ndim else 0


def permute(call):
    """permute: by the argument dims, or the two dimensions of a transposition."""
    ndim = len(call.shapes[0])
    if call.name in ("permute",):
        order = [_wrapped(d, ndim) for d in call.values["dims"]]
    elif call.name in ("transpose", "swapaxes", "swapdims"):
        names = [a.name for a in call.func._schema.arguments][1:3]
        first, second = (_wrapped(call.values[name], ndim) for name in names)
        order = list(range(ndim))
        if ndim:
            order[first], order[second] = order[second], order[first]
    elif call.name in ("mT", "mH", "adjoint"):
        order = [*range(ndim - 2), ndim - 1, ndim - 2]
    elif call.name == "movedim":
        source, target = call.values["source"], call.values["destination"]
        source = [_wrapped(d, ndim) for d in (source if isinstance(source, (list, tuple)) else [source])]
        target = [_wrapped(d, ndim) for d in (target if isinstance(target, (list, tuple)) else [target])]
        rest = iter([d for d in range(ndim) if d not in source])
        order = [source[target.index(i)] if i in target else next(rest) for i in range(ndim)]
    else:  # t, numpy_T, matrix_H
        order = list(reversed(range(ndim)))
    yield from _mapped(call, [order.index(d) for d in range(ndim)])


def squeeze(call):
    """squeeze: dimensions of size one go."""
    shape = call.shapes[0]
    if "dim" in call.values:
        given = call.values["dim"]
        gone = {_wrapped(d, len(shape)) for d in (given if isinstance(given, (list, tuple)) else [given])}
        gone = {d for d in gone if shape and shape[d] == 1}
    else:
        gone = {d for d, size in enumerate(shape) if size == 1}
    yield from _mapped(call, [None if d in gone else d - sum(g < d for g in gone) for d in range(len(shape))])


def unsqueeze(call):
    """unsqueeze: a dimension of size one comes."""
    ndim = len(call.shapes[0])
    dim = _wrapped(call.values["dim"], ndim + 1)
    yield from _mapped(call, [d if d < dim else d + 1 for d in range(ndim)])


def expand(call):
    """expand: dimensions of size one are repeated."""
    shape, out = call.shapes[0], call.metas[0].shape
    call.size_argument = "size" if call.name == "expand" else None
    extra = len(out) - len(shape)
    places = [d + extra if size == out[d + extra] else None for d, size in enumerate(shape)]
    if call.name != "expand":  # expand_as: the second tensor is only looked at
        for outs, ins in _mapped(call, places):
            yield outs, (*ins, outs[0])
        return
    yield from _mapped(call, places)


def _groups(shape, out):
    """Runs of dimensions of both shapes that have the same number of elements."""
    i = j = 0
    while i < len(shape) or j < len(out):
        first, second = [], []
        a = b = 1
        if i < len(shape):
            first.append(i)
            a *= shape[i]
            i += 1
        if j < len(out):
            second.append(j)
            b *= out[j]
            j += 1
        while a != b:
            if a < b:
                if i >= len(shape):
                    return
                first.append(i)
                a *= shape[i]
                i += 1
            else:
                if j >= len(out):
                    return
                second.append(j)
                b *= out[j]
                j += 1
        yield first, second


def reshape(call):
    """reshape: a split dimension stays the first of those that it is joined with or taken apart into."""
    shape, out = call.shapes[0], tuple(call.metas[0].shape)
    names = [a.name for a in call.func._schema.arguments]
    call.size_argument = next((name for name in ("size", "shape") if name in names), None)
    places = [None] * len(shape)
    if 0 not in shape:
        for first, second in _groups(shape, out):
            first = [d for d in first if shape[d] != 1] or first[:1]
            second = [d for d in second if out[d] != 1] or second[:1]
            if not first or not second:
                continue
            d, place = first[0], second[0]
            alone = len(first) == 1 and len(second) == 1
            if alone or (shape[d] % call.count == 0 and out[place] % call.count == 0):
                places[d] = place
    if call.size_argument is None and call.name in ("unflatten", "flatten"):
        call.replacement = _by_size
    now = call.now[0]
    if call.name == "view" and isinstance(now, Shard) and places[now.dim] is None:
        raise RuntimeError(
            f"{call.func}: Attempted to flatten or unflatten the sharded dimension {now.dim} of {shape} to {out}, which "
            f"cannot be performed without redistribution over {call.count} processes: redistribute the tensor first"
        )
    yield from _mapped(call, places)


def _by_size(plan):
    from mica.distributed.tensor._utils import compute_local_shape

    def run(args, kwargs):
        return args[0].reshape(compute_local_shape(plan.metas[0].shape, plan.mesh, plan.outputs[0]))

    return run


def select(call):
    """select: one index of a dimension, which goes."""
    ndim = len(call.shapes[0])
    dim = _wrapped(call.values["dim"], ndim)
    yield from _mapped(call, [None if d == dim else d - (d > dim) for d in range(ndim)])


def part(call):
    """part: some of a dimension, or several such parts; all of it if nothing is left out."""
    ndim = len(call.shapes[0])
    dim = _wrapped(call.values.get("dim", 0), ndim)
    whole = call.outputs == 1 and call.metas[0].shape == call.shapes[0]
    yield from _mapped(call, [d if d != dim or (whole and call.name == "slice") else None for d in range(ndim)])


def unbind(call):
    """unbind: all indices of a dimension, which goes."""
    yield from select(call)


def diagonal(call):
    """diagonal: two dimensions go, and one comes at the end."""
    ndim = len(call.shapes[0])
    pair = {_wrapped(call.values["dim1"], ndim), _wrapped(call.values["dim2"], ndim)}
    yield from _mapped(call, [None if d in pair else d - sum(p < d for p in pair) for d in range(ndim)])


def repeat(call):
    """repeat: dimensions that are not repeated may be split."""
    shape, out = call.shapes[0], call.metas[0].shape
    extra = len(out) - len(shape)
    yield from _mapped(call, [d + extra if size == out[d + extra] else None for d, size in enumerate(shape)])
    call.view = False


def cat(call):
    """cat: the dimension that grows is not split."""
    shapes = [s for s in call.shapes if len(s) > 1 or s != (0,)]
    ndim = len(call.metas[0].shape)
    dim = _wrapped(call.values["dim"], ndim)
    if len(shapes) == len(call.shapes):
        for d in range(ndim):
            if d != dim:
                yield (Shard(d),), (Shard(d),) * len(shapes)
    yield call.replicated()
    yield call.same(Partial("sum"))


def stack(call):
    """stack: a new dimension, which is not split."""
    ndim = len(call.metas[0].shape)
    dim = _wrapped(call.values["dim"], ndim)
    for d in range(ndim - 1):
        yield (Shard(d if d < dim else d + 1),), (Shard(d),) * len(call.shapes)
    yield call.replicated()
    yield call.same(Partial("sum"))


def pad(call):
    """pad: the dimensions that grow are not split."""
    shape, out = call.shapes[0], call.metas[0].shape
    yield from _mapped(call, [d if shape[d] == out[d] else None for d in range(len(shape))])
    call.view = False


def matrices(call):
    """matrices: all dimensions but the last two, which are rows and columns."""
    ndim = len(call.shapes[0])
    yield from _mapped(call, [d if d < ndim - 2 else None for d in range(ndim)])
    call.view = False


WORDS = {
    "matrices": matrices, "permute": permute, "squeeze": squeeze, "unsqueeze": unsqueeze, "expand": expand, "reshape": reshape,
    "select": select, "part": part, "unbind": unbind, "diagonal": diagonal, "repeat": repeat, "cat": cat, "stack": stack,
    "pad": pad,
}  # fmt: skip
