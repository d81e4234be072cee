"""The flow by graphs, by its older name: see mica.ao.quantization.quantize_fx."""

from mica.ao.quantization.quantize_fx import *  # noqa: F403
