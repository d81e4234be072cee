"""Discrete Fourier transforms: `ops/layers/fft.toml`."""

from mica import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica._fft import *  # noqa: F403

globals().update({name: value for name, value in vars(_C._fft).items() if not name.startswith("__")})
__all__ = [name for name in vars(_C._fft) if not name.startswith("_")]
