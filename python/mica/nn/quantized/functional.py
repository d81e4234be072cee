"""Functions of quantized tensors, by their older name: see mica.ao.nn.quantized.functional."""

from mica.ao.nn.quantized.functional import *  # noqa: F403
