"""Autograd for tensors that stand for one example of a batch: on the values of all, example by example.

Imported where vmap is first used; autograd.grad and Function.apply know of examples from then on.
"""

from mica import _C
from mica.func._batched import (
    BatchedTensor,
    Call,
    active_levels,
    is_batched,
    levels_in,
    through_examples,
    wrap,
)

Tensor = _C.Tensor


def expanded_to_levels(x):
    """The tensor as an example of every vmap that is running: as many equal examples, without a copy."""
    for level in active_levels():
        if not _has_level(x, level):
            x = _expand_below(x, level)
    return x


def _has_level(x, level):
    while type(x) is BatchedTensor:
        if x._batch_level is level:
            return True
        x = x._batch_value
    return False


def _expand_below(x, level):
    """`x` with a batch of `level` put under those of deeper levels."""
    if type(x) is BatchedTensor and x._batch_level.depth > level.depth:
        inner = _expand_below_values(x._batch_value, level)
        return wrap(inner, x._batch_level)
    return wrap(x.expand(level.size, *x.shape), level)


def _expand_below_values(value, level):
    if type(value) is BatchedTensor and value._batch_level.depth > level.depth:
        return wrap(_expand_below_values(value._batch_value, level), value._batch_level)
    return wrap(value.expand(level.size, *value.shape), level)


def gradients(outputs, inputs, weights, retain_graph, create_graph, allow_unused):
    """autograd.grad for tensors that may be examples of batches."""
    level = levels_in(outputs, levels_in(inputs, levels_in(weights or (), None)))
    if level is None:
        return _C._autograd_grad(outputs, inputs, weights, retain_graph, create_graph, allow_unused)
    import mica

    if weights is None:
        weights = [None] * len(outputs)
    values, seeds = [], []
    for y, w in zip(outputs, weights, strict=True):
        if w is None:
            if y.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            w = mica.ones_like(y)
        batched_y, batched_w = is_batched(y, level), is_batched(w, level)
        value = y._batch_value if batched_y else y
        seed = w._batch_value if batched_w else w
        if batched_y and not batched_w:
            seed = seed.expand(level.size, *seed.shape)
        elif batched_w and not batched_y:
            value = value.expand(level.size, *value.shape)
        values.append(value)
        seeds.append(seed)
    given = [x._batch_value if is_batched(x, level) else x for x in inputs]
    found = gradients(tuple(values), tuple(given), tuple(seeds), retain_graph, create_graph, allow_unused)
    return tuple(
        g if g is None or not is_batched(x, level) else wrap(g, level) for g, x in zip(found, inputs, strict=True)
    )


# ------------------------------------------------------------------------------------------------ functions of one's own
class VmapInfo:
    """What a function's own `vmap` is told."""

    __slots__ = ("batch_size", "randomness")

    def __init__(self, level):
        self.batch_size, self.randomness = level.size, level.randomness


def _applied(cls, *args, **kwargs):
    """Function.apply, also on examples: by the function's own `vmap`, or for one example after the other."""
    level = levels_in(args, levels_in(kwargs.values(), None))
    apply = _FUNCTION_APPLY.__get__(None, cls)
    if level is None:
        return apply(*args, **kwargs)
    call = Call(lambda *a, **k: _applied(cls, *a, **k), cls.__name__, args, kwargs, level)
    from mica.autograd import Function

    own = cls.vmap
    if own is Function.vmap or cls.generate_vmap_rule:
        return through_examples(call)
    in_dims = tuple(0 if call.is_batched(x) else None for x in args)
    result, out_dims = own(VmapInfo(level), in_dims, *[call.value(x) for x in args], **kwargs)
    if isinstance(result, Tensor) or result is None:
        return _placed(result, out_dims, level)
    dims = out_dims if isinstance(out_dims, (tuple, list)) else [out_dims] * len(result)
    return type(result)(_placed(x, d, level) for x, d in zip(result, dims, strict=True))


def _placed(x, dim, level):
    if dim is None or not isinstance(x, Tensor):
        return x
    return wrap(x.movedim(dim, 0), level)


_FUNCTION_APPLY = next(vars(c)["apply"] for c in _C._FunctionBase.__mro__ if "apply" in vars(c))


def register_with_autograd():
    """Let autograd know of examples; done when this module is first used, for who does not use it pays nothing."""
    import mica.autograd

    mica.autograd._gradients_of_examples = gradients
    mica.autograd.Function.apply = classmethod(_applied)


register_with_autograd()
