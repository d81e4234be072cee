"""Processing of signals: the windows of `mica.signal.windows`."""

from mica.signal import windows

__all__ = ["windows"]
