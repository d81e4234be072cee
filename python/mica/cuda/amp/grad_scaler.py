"""A part of mica.cuda.amp by the name of torch's module."""

from mica.amp.grad_scaler import OptState
from mica.cuda.amp import GradScaler

__all__ = ["GradScaler", "OptState"]
