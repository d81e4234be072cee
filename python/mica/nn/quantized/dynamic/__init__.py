"""Layers that quantize their input as it comes, by their older name: see mica.ao.nn.quantized.dynamic."""

from mica.ao.nn.quantized.dynamic import *  # noqa: F403
from mica.ao.nn.quantized.dynamic import __all__  # noqa: F401
