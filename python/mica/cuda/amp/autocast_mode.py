"""A part of mica.cuda.amp by the name of torch's module."""

from mica.cuda.amp import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]
