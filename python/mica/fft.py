"""Discrete Fourier transforms: `ops/layers/fft.toml`."""

from mica import _C
from mica._C import Tensor  # noqa: F401 - torch has it here too
from mica._functions.families import publish as _publish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica._fft import *  # noqa: F403

globals().update(_publish("fft"))
__all__ = [name for name in vars(_C._fft) if not name.startswith("_")]
