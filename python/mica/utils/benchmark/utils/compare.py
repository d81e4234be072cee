"""Tables."""

from mica.utils.benchmark.compare import Colorize, Compare

__all__ = ["Colorize", "Compare"]
