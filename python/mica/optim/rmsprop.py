"""RMSprop: steps divided by the root of the mean square of gradients."""

from mica._generated import optimizers
from mica._generated.optimizers import rmsprop

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(optimizers.RMSprop):
    """Divides gradients by the root of their running mean square; `centered` takes the mean off first."""
