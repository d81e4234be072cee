"""A part of mica.cuda.amp by the name of torch's module."""

from mica.cuda.amp import amp_definitely_not_available

__all__ = ["amp_definitely_not_available"]
