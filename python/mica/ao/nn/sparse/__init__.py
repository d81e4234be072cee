"""Layers whose weights are mostly zeros."""

from mica.ao.nn.sparse import quantized

__all__ = ["quantized"]
