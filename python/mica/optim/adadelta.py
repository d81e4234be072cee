"""Adadelta: steps by the ratio of past updates to past gradients."""

from mica._generated import optimizers
from mica._generated.optimizers import adadelta

__all__ = ["Adadelta", "adadelta"]


class Adadelta(optimizers.Adadelta):
    """Scales gradients by the ratio of the running mean squares of updates and of gradients."""
