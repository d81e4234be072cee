"""Joined layers in training, by their older name: see mica.ao.nn.intrinsic.qat."""

from mica.ao.nn.intrinsic.qat import *  # noqa: F403
from mica.ao.nn.intrinsic.qat import __all__  # noqa: F401
