"""Adam that waits until its variance is known."""

from mica._generated import optimizers
from mica._generated.optimizers import radam

__all__ = ["RAdam", "radam"]


class RAdam(optimizers.RAdam):
    """Adam whose adaptive step is held back while the mean square rests on few gradients."""
