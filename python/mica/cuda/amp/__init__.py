"""Mixed precision on CUDA, by torch's older names; mica.amp has those for every device."""

import functools

from mica import _C
from mica import amp as _amp

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]

custom_fwd = functools.partial(_amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(_amp.custom_bwd, device_type="cuda")


def amp_definitely_not_available():
    """Whether there is no GPU to cast for."""
    return not _C._device_count("cuda")


class autocast(_amp.autocast):
    """mica.amp.autocast("cuda", ...)."""

    def __init__(self, enabled=True, dtype=_C.float16, cache_enabled=True):
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_amp.GradScaler):
    """mica.amp.GradScaler("cuda", ...)."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
