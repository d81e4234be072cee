"""Quantization by its older name: see mica.ao.quantization."""

from mica.ao.quantization import *  # noqa: F403
from mica.ao.quantization import __all__  # noqa: F401
