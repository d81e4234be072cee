"""NAdam: Adam with Nesterov's momentum."""

from mica._generated import optimizers
from mica._generated.optimizers import nadam

__all__ = ["NAdam", "nadam"]


class NAdam(optimizers.NAdam):
    """Adam that looks ahead by one step of its momentum, which grows by a schedule."""
