"""Stochastic gradient descent."""

from mica._generated import optimizers
from mica._generated.optimizers import sgd

__all__ = ["SGD", "sgd"]


class SGD(optimizers.SGD):
    """Moves parameters against their gradients, or against a running sum of them (momentum).

    The sum begins with the first gradient, undamped; `nesterov` looks ahead by one step of it.

    Args:
        params: parameters, (name, parameter) pairs, or groups of them as dicts
        lr: the learning rate
        momentum: how much of the running sum is kept in a step; 0 uses the gradient alone
        dampening: how much of the gradient is left out of the running sum
        weight_decay: how much of the parameter is added to its gradient
        nesterov: whether the step looks ahead
        maximize: whether the objective is to grow
        differentiable: whether autograd records the steps
        foreach, fused: change nothing: every step is one pass over memory, where the device has a kernel for it

    Example::

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    """
