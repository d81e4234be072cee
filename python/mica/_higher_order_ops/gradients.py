"""Gradients of conditions and loops while make_fx records them: the backward pass of a node is another node, with graphs.

The graphs of that pass come from the functions that the program gave: they run once more, on tensors of their own, and
take their gradients by themselves. So what a function does without gradients stays without, and the pass itself can be
differentiated the same way.
"""

import contextlib

import mica
from mica._higher_order_ops.recorders import recorder
from mica.overrides import TorchFunctionMode
from mica.utils._pytree import tree_leaves, tree_map

__all__ = ["has_gradients", "pass_of", "takes_gradients", "with_gradients"]


def takes_gradients(around, values):
    """Whether a trace takes gradients by itself, so that the node of a condition or a loop needs a backward pass."""
    takes = type(around).__name__ == "ProxyTorchDispatchMode" and mica.is_grad_enabled()
    return takes and any(isinstance(leaf, mica.Tensor) and leaf.requires_grad for leaf in tree_leaves(values))


class _Node(mica.autograd.Function):
    """The node of a condition or a loop, whose backward pass is recorded by a function."""

    @staticmethod
    def forward(ctx, record, gradients, kept, results, *given):
        tensors = [each for each in given if isinstance(each, mica.Tensor)]
        ctx.gradients, ctx.others = gradients, [None if isinstance(each, mica.Tensor) else each for each in given]
        ctx.differentiable = [i for i, each in enumerate(results) if has_gradients(each)]
        ctx.mark_non_differentiable(*(each for each in results if not has_gradients(each)))
        ctx.save_for_backward(*tensors, *results[kept])
        ctx.set_materialize_grads(False)  # zeros that the engine makes are in no graph
        record(results)
        ctx.alike = [_alike(each) for each in results]
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads):
        saved = iter(ctx.saved_tensors)
        values = [next(saved) if each is None else each for each in ctx.others]
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[4:]) if needed]
        grads = [mica.zeros_like(ctx.alike[i]) if grads[i] is None else grads[i] for i in ctx.differentiable]
        made = ctx.gradients(values, list(saved), grads, wanted)
        found = dict(zip(wanted, made, strict=True))
        return (None, None, None, None, *(found.get(i) for i in range(len(values))))


def with_gradients(around, record, gradients, made, given, kept=slice(0)):
    """The results of a node, which know how their gradients are recorded.

    Args:
        around: the recorder of the program
        record: records the node for results
        gradients: records the backward pass: a function of the values given, of the results that are kept, of the
            gradients of those results that have some, and of the places of the values whose gradients are wanted
        made: the results
        given: the values that the node reads
        kept: which results the backward pass reads
    """
    with around.unseen():
        own = [each.detach() if isinstance(each, mica.Tensor) else each for each in made]
    places = [i for i, each in enumerate(own) if isinstance(each, mica.Tensor)]

    def recorded(results):
        record([results[places.index(i)] if i in places else each for i, each in enumerate(own)])

    results = iter(_Node.apply(recorded, gradients, kept, [own[i] for i in places], *given))
    return [next(results) if i in places else each for i, each in enumerate(own)]


def _alike(tensor):
    """Another object of a tensor, known by the same node, which holds on to nothing that computed it."""
    around = recorder()
    with around.unseen():
        made = tensor.detach()
    around.stands_for(made, tensor)
    return made


def has_gradients(value):
    """Whether a value is a tensor of a dtype that gradients have."""
    return isinstance(value, mica.Tensor) and (value.is_floating_point() or value.is_complex())


def pass_of(function, given, count, wanted):
    """The backward pass of a function, as a function of the given values and of the gradients of its results.

    Args:
        function: takes the first `count` of the values that are given, and may read the others by their names
        given: the values as the program around has them
        wanted: the places of the values whose gradients are returned
    """

    def gradients(*values):
        inner, grads = list(values[: len(given)]), values[len(given) :]
        is_differentiated = mica.is_grad_enabled()
        with mica.enable_grad():
            for i in wanted:
                inner[i] = _apart(inner[i], is_differentiated)
            with _Instead(given, inner):
                made = filter(has_gradients, tree_leaves(function(*inner[:count])))
            pairs = zip(made, grads, strict=True)
            results, grads = _columns([pair for pair in pairs if pair[0].requires_grad])
            sought = [inner[i] for i in wanted]
            found = [None] * len(sought)
            if results:
                found = mica.autograd.grad(results, sought, grads, allow_unused=True, create_graph=is_differentiated)
        pairs = zip(sought, found, strict=True)
        return tuple(mica.zeros_like(each) if grad is None else grad for each, grad in pairs)

    return gradients


def _apart(tensor, is_differentiated):
    """Another object of a tensor, with respect to which gradients are taken: others may be computed of the tensor."""
    around = recorder()
    with contextlib.nullcontext() if around is None else around.unseen():
        is_connected = is_differentiated and tensor.requires_grad
        made = tensor.view_as(tensor) if is_connected else tensor.detach().requires_grad_()
    if around is not None:
        around.stands_for(made, tensor)
    return made


def _columns(pairs):
    return [first for first, _ in pairs], [second for _, second in pairs]


class _Instead(TorchFunctionMode):
    """Hands other tensors to functions of torch in place of those that the program around has."""

    def __init__(self, olds, news):
        super().__init__()
        pairs = zip(olds, news, strict=True)
        self._news = {id(old): (old, new) for old, new in pairs if isinstance(old, mica.Tensor) and old is not new}

    def _new(self, leaf):
        return self._news.get(id(leaf), (leaf, leaf))[1]

    def __torch_function__(self, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(self._new, (tuple(args), dict(kwargs or {})))
        return func(*args, **kwargs)
