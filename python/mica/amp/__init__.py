"""Mixed precision: autocast and the scaling of losses."""

from mica.amp.autocast_mode import (
    _enter_autocast,  # noqa: F401
    _exit_autocast,  # noqa: F401
    autocast,
    custom_bwd,
    custom_fwd,
    is_autocast_available,
)
from mica.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
