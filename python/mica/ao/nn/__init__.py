"""Modules of quantized models."""

from mica.ao.nn import intrinsic, qat, quantized

__all__ = ["intrinsic", "qat", "quantized"]
