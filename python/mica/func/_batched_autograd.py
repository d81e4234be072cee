"""Autograd for tensors that stand for one example of a batch: on the values of all, example by example.

Imported where vmap is first used; autograd.grad and Function.apply know of examples from then on.
"""

from typing import NamedTuple

from mica import _C, autograd
from mica.func import _batched, _generated_rule
from mica.func._batched import (
    BatchedTensor,
    Call,
    active_levels,
    given,
    is_batched,
    levels_in,
    through_examples,
    wrap,
)
from mica.utils._pytree import tree_flatten, tree_unflatten

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
    """`x` as an example of `level` too, wrapped inside the wrappers of deeper levels."""
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
        autograd._compute_recorded()  # the seeds may be recorded
        return _C._autograd_grad(outputs, inputs, weights, retain_graph, create_graph, allow_unused)
    weights = _seeds(outputs, weights)
    if not all(is_batched(x, level) for x in inputs):
        return _for_each(outputs, inputs, weights, retain_graph, create_graph, allow_unused, level)
    # Every input belongs to one example, so the gradient of the sum over the batch holds one for each.
    pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if is_batched(y, level)]
    if not pairs:
        if not allow_unused:
            raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph.")
        return (None,) * len(inputs)
    values = tuple(y._batch_value for y, _ in pairs)
    seeds = tuple(w._batch_value if is_batched(w, level) else w.expand(level.size, *w.shape) for _, w in pairs)
    sources = tuple(x._batch_value for x in inputs)
    found = gradients(values, sources, seeds, retain_graph, create_graph, allow_unused)
    return tuple(None if g is None else wrap(g, level) for g in found)


def _seeds(outputs, weights):
    import mica

    weights = [None] * len(outputs) if weights is None else weights
    seeds = []
    for y, w in zip(outputs, weights, strict=True):
        if w is None:
            if y.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            w = mica.ones_like(y)
        seeds.append(w)
    return seeds


def _for_each(outputs, inputs, weights, retain_graph, create_graph, allow_unused, level):
    """One backward pass for each example: some input is shared by all, and has a gradient from each."""
    import mica

    def value(x):
        return x._batch_value if is_batched(x, level) else x

    sources = tuple(value(x) for x in inputs)
    rows = []
    for i in range(level.size):
        ys = tuple(value(y).select(0, i) if is_batched(y, level) else y for y in outputs)
        ws = tuple(value(w).select(0, i) if is_batched(w, level) else w for w in weights)
        keep = True if i + 1 < level.size else retain_graph
        found = gradients(ys, sources, ws, keep, create_graph, allow_unused)
        rows.append(
            [
                g.select(0, i) if g is not None and is_batched(x, level) else g
                for g, x in zip(found, inputs, strict=True)
            ]
        )
    columns = zip(*rows, strict=True) if rows else [(mica.zeros_like(x),) for x in sources]
    return tuple(None if c[0] is None else wrap(mica.stack(c), level) for c in columns)


# ------------------------------------------------------------------------------------------------ functions of one's own
class VmapInfo(NamedTuple):
    """What a function's own `vmap` is told."""

    batch_size: int
    randomness: str


def _applied(cls, *args, **kwargs):
    """Function.apply, also on examples: by the function's own `vmap`, or for one example after the other."""
    leaves, tree = tree_flatten(args)
    level = levels_in(leaves, levels_in(kwargs.values(), None))
    if level is None:
        return cls._apply(*args, **kwargs)
    call = Call(lambda *a, **k: _applied(cls, *a, **k), cls.__name__, args, kwargs, level)
    from mica.autograd import Function

    own = cls.vmap
    if own is not Function.vmap and any(isinstance(x, Tensor) for x in kwargs.values()):
        raise NotImplementedError(
            f"NYI: vmap over {cls.__name__}, an autograd.Function with kwarg-only Tensor args. Pass them by position."
        )
    if own is not Function.vmap and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap "
            "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity."
        )
    if own is Function.vmap:
        if cls.generate_vmap_rule and cls.setup_context is not Function.setup_context and not kwargs:
            bound = cls._bind_arguments(args, {})
            return _generated_rule.applied(cls, level, bound)
        return through_examples(call)
    if cls._bind_arguments is not None:
        args, kwargs = cls._bind_arguments(args, kwargs), {}
        leaves, tree = tree_flatten(args)
    return by_own_rule(own, f"{cls.__name__}.vmap", call, leaves, tree, kwargs)


def by_own_rule(own, name, call, leaves, tree, kwargs):
    """The result that the registered `vmap` of a function or of an operator computes from the values of all examples."""
    level = call.level
    pairs = [given(x) if call.is_batched(x) else (x, None) for x in leaves]
    in_dims = tree_unflatten([dim for _, dim in pairs], tree)
    values = tree_unflatten([value for value, _ in pairs], tree)
    answer = own(VmapInfo(level.size, level.randomness), in_dims, *values, **kwargs)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise RuntimeError(
            "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible "
            f"with the output. Got a {type(answer).__name__} from {name}"
        )
    result, out_dims = answer
    return _spread(result, out_dims, level, name)


def _spread(result, dims, level, name):
    """Results with their dimensions of examples, which may be one for several."""
    if not isinstance(result, (tuple, list)):
        if isinstance(dims, (tuple, list)):
            _refuse_dims(dims, name)
        return _placed(result, dims, level)
    if isinstance(dims, (tuple, list)):
        if type(dims) is not type(result) or len(dims) != len(result):
            _refuse_dims(dims, name)
    else:
        dims = [dims] * len(result)
    parts = [_spread(x, d, level, name) for x, d in zip(result, dims, strict=True)]
    return type(result)(*parts) if hasattr(result, "_make") else type(result)(parts)


def _refuse_dims(dims, name):
    raise RuntimeError(
        "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
        f"out_dims={dims} of {name} to be compatible with the structure of `output`."
    )


def of_operator(operator, call):
    """An operator of a program's own that says how vmap runs it (register_vmap)."""
    leaves, tree = tree_flatten(call.args)
    name = f"the vmap of {operator.qualified_name}"
    return by_own_rule(operator.vmap, name, call, leaves, tree, call.kwargs)


def _placed(x, dim, level):
    if dim is None or not isinstance(x, Tensor):
        return x
    return wrap(x.movedim(dim, 0), level)


def register_with_autograd():
    """Let autograd know of examples. That is done when this module is first used, so that programs without vmap pay nothing."""
    import mica.autograd

    mica.autograd._gradients_of_examples = gradients
    _C._FunctionBase._hook_apply(_applied)
    _batched.of_operator = of_operator


register_with_autograd()
