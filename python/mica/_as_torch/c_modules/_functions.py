"""Nodes of the graph that a program asks for itself, by the names of torch's engine."""

from mica import _C
from mica.autograd.function import Function
from mica.autograd.gradcheck import _NoGradient

AccumulateGrad = _C._AccumulateGrad


class UndefinedGrad:
    """Hands tensors on, and no gradient back."""

    def __call__(self, *inputs):
        made = _NoGradient.apply(*inputs)
        return made[0] if len(made) == 1 else made


class _Raising(Function):
    @staticmethod
    def forward(ctx, message, *inputs):
        ctx.message = message
        return tuple(each.view_as(each) for each in inputs)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(ctx.message)


class DelayedError:
    """Hands tensors on. A backward pass that reaches this node fails with the message."""

    def __init__(self, msg, num_inputs):
        self._message, self._count = msg, num_inputs

    def __call__(self, *inputs):
        if len(inputs) != self._count:
            raise RuntimeError(f"DelayedError expects {self._count} inputs, but got {len(inputs)}")
        made = _Raising.apply(self._message, *inputs)
        return made[0] if len(made) == 1 else made
