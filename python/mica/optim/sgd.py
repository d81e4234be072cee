"""Stochastic gradient descent."""

from mica._generated import optimizers
from mica._generated.optimizers import sgd

__all__ = ["SGD", "sgd"]


class SGD(optimizers.SGD):
    """Moves parameters against their gradients, or against a running sum of them (momentum).

    The sum begins with the first gradient, undamped; `nesterov` looks ahead by one step of it.
    """
