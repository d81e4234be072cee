"""Modules of quantized models."""

from mica.ao.nn import quantized

__all__ = ["quantized"]
