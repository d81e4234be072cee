"""ASGD: averaged stochastic gradient descent."""

from mica._generated import optimizers
from mica._generated.optimizers import asgd

__all__ = ["ASGD", "asgd"]


class ASGD(optimizers.ASGD):
    """Gradient descent with a shrinking rate that also keeps the mean of the parameters from step `t0` on."""
