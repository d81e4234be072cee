"""Mixed precision on CUDA, by torch's older names; mica.amp has those for every device."""

import functools
import warnings

from mica import _C
from mica import amp as _amp

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def _older(name, newer):
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{newer}` instead.",
        FutureWarning,
        stacklevel=3,
    )


@functools.wraps(_amp.custom_fwd)
def custom_fwd(fwd=None, *, cast_inputs=None):
    _older("custom_fwd", "custom_fwd(args..., device_type='cuda')")
    return _amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


@functools.wraps(_amp.custom_bwd)
def custom_bwd(bwd):
    _older("custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return _amp.custom_bwd(bwd, device_type="cuda")


def amp_definitely_not_available():
    """Whether there is no GPU to cast for."""
    return not _C._device_count("cuda")


class autocast(_amp.autocast):
    """mica.amp.autocast("cuda", ...)."""

    def __init__(self, enabled=True, dtype=_C.float16, cache_enabled=True):
        _older("autocast", "autocast('cuda', args...)")
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_amp.GradScaler):
    """mica.amp.GradScaler("cuda", ...)."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        _older("GradScaler", "GradScaler('cuda', args...)")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
