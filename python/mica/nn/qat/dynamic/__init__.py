"""Layers that train for dynamic quantization, by their older name."""

from mica.ao.nn.qat.dynamic import Linear

__all__ = ["Linear"]
