"""vmap over a custom function with `generate_vmap_rule=True`: its forward and its backward run on examples."""

from mica import _C
from mica.autograd.function import Function
from mica.func._batched import is_batched, wrap

__all__ = ["applied"]

Tensor = _C.Tensor


class _Call:
    """One call of a function on examples of one level."""

    def __init__(self, cls, level, args):
        self.cls, self.level = cls, level
        self.batched = [is_batched(x, level) for x in args]

    def inside(self, values, batched):
        return [wrap(x, self.level) if each else x for x, each in zip(values, batched, strict=True)]

    def outside(self, x):
        """The values of all examples, also of a result that does not depend on the example."""
        if not isinstance(x, Tensor):
            return x
        return x._batch_value if is_batched(x, self.level) else x.expand(self.level.size, *x.shape).clone()


class _Context:
    """The ctx that the function's own methods get. It keeps the values of all examples, and returns them as examples."""

    def __init__(self, ctx, call):
        self._ctx, self._call, self._saved, self._without = ctx, call, [], ()

    def save_for_backward(self, *tensors):
        level = self._call.level
        self._saved = [is_batched(x, level) for x in tensors]
        self._ctx.save_for_backward(
            *(x._batch_value if each else x for x, each in zip(tensors, self._saved, strict=True))
        )

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self):
        return tuple(self._call.inside(self._ctx.saved_tensors, self._saved))

    @property
    def needs_input_grad(self):
        return self._ctx.needs_input_grad[1:]

    def mark_non_differentiable(self, *outputs):
        self._without = outputs

    def mark_dirty(self, *inputs):
        raise RuntimeError(
            "vmap over an autograd.Function with generate_vmap_rule=True: ctx.mark_dirty is not supported. Please "
            "implement the vmap staticmethod instead."
        )

    def set_materialize_grads(self, value):
        self._ctx.set_materialize_grads(value)


class _OnExamples(Function):
    @staticmethod
    def forward(ctx, call, *values):
        args = tuple(call.inside(values, call.batched))
        result = call.cls.forward(*args)
        ctx.inner = _Context(ctx, call)
        call.cls.setup_context(ctx.inner, args, result)
        outputs = result if isinstance(result, tuple) else (result,)
        made = tuple(call.outside(x) for x in outputs)
        without = [y for x, y in zip(outputs, made, strict=True) if any(x is each for each in ctx.inner._without)]
        ctx.mark_non_differentiable(*without)
        ctx.shapes = [x.shape if isinstance(x, Tensor) else None for x in args]
        return made if isinstance(result, tuple) else made[0]

    @staticmethod
    def backward(ctx, *grads):
        call = ctx.inner._call
        found = call.cls.backward(ctx.inner, *(g if g is None else wrap(g, call.level) for g in grads))
        found = found if isinstance(found, tuple) else (found,)
        results = []
        for gradient, batched, shape in zip(found, call.batched, ctx.shapes, strict=False):
            if gradient is None or shape is None:
                results.append(None)
            elif batched:
                results.append(call.outside(gradient))
            else:  # all examples share the argument
                results.append(call.outside(gradient).sum(0))
        return (None, *results)


def applied(cls, level, args):
    """cls.apply on examples."""
    call = _Call(cls, level, args)
    values = [x._batch_value if each else x for x, each in zip(args, call.batched, strict=True)]
    result = _OnExamples.apply(call, *values)
    if isinstance(result, tuple):
        return tuple(wrap(x, level) if isinstance(x, Tensor) else x for x in result)
    return wrap(result, level)
