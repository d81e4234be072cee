"""Which kernels attention may use. Mica has one, which never makes the matrix of scores: the choice is kept and changes nothing."""

import enum

from mica.backends import cuda as _settings

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """torch's kernels."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __repr__(self):
        return f"<SDPBackend.{self.name}: {self.value}>"


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
