"""RAdam: Adam that holds back until its estimate of the variance is good."""

from mica._generated import optimizers
from mica._generated.optimizers import radam

__all__ = ["RAdam", "radam"]


class RAdam(optimizers.RAdam):
    """Adam whose adaptive step is held back while the mean square rests on few gradients."""
