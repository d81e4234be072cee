"""Joined layers of quantized tensors, by their older name: see mica.ao.nn.intrinsic.quantized."""

from mica.ao.nn.intrinsic.quantized import *  # noqa: F403
from mica.ao.nn.intrinsic.quantized import __all__  # noqa: F401
from mica.nn.intrinsic.quantized import dynamic  # noqa: F401
