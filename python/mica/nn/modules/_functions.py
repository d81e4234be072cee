"""Nodes that modules put into the graph."""

from mica.autograd.function import Function


class BackwardHookFunction(Function):
    """Passes its inputs on, and gives them one node, on which a module hangs its backward hooks."""

    @staticmethod
    def forward(ctx, *args):
        ctx.mark_non_differentiable(*(arg for arg in args if not arg.requires_grad))
        return args

    @staticmethod
    def backward(ctx, *grads):
        return grads
