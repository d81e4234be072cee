"""Which kernels attention may use. Mica obeys whether cuDNN is one of them; the rest of the choice changes nothing."""

import enum

from mica.backends import cuda as _settings

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.Enum):
    """The kernels that torch chooses among for attention.

    Mica has its own kernels, and only obeys whether cuDNN may be used. As in torch, the members are not numbers.
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self):
        return self.value

    __index__ = __int__

    def __repr__(self):
        return f"<SDPBackend.{self.name}: {self.value}>"

    def __str__(self):
        return f"SDPBackend.{self.name}"


def sdpa_kernel(backends, set_priority=False):
    """Keep, in a with block or a decorated function, that attention may use these kernels."""
    if isinstance(backends, SDPBackend):
        backends = [backends]
    if not isinstance(backends, list):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, "
            f"got {type(backends).__name__}"
        )
    return _settings._attention_settings(
        flash=SDPBackend.FLASH_ATTENTION in backends,
        mem_efficient=SDPBackend.EFFICIENT_ATTENTION in backends,
        math=SDPBackend.MATH in backends,
        cudnn=SDPBackend.CUDNN_ATTENTION in backends,
    )


def _cur_sdpa_kernel_backends(with_priority=False):
    """The kernels that attention may use now."""
    enabled = [
        (SDPBackend.FLASH_ATTENTION, _settings.flash_sdp_enabled()),
        (SDPBackend.EFFICIENT_ATTENTION, _settings.mem_efficient_sdp_enabled()),
        (SDPBackend.MATH, _settings.math_sdp_enabled()),
        (SDPBackend.CUDNN_ATTENTION, _settings.cudnn_sdp_enabled()),
    ]
    return [backend for backend, on in enabled if on]


def __getattr__(name):
    import importlib

    if name in ("bias", "flex_attention", "varlen"):
        return importlib.import_module(f"mica.nn.attention.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
