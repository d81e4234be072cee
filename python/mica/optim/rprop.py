"""Rprop: steps by the sign of the gradient."""

from mica._generated import optimizers
from mica._generated.optimizers import rprop

__all__ = ["Rprop", "rprop"]


class Rprop(optimizers.Rprop):
    """Moves by a step size per element that grows while the gradient keeps its sign and shrinks when it turns."""
