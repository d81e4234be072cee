"""Quantization of models: observers, fake quantization, and modules that compute with 8-bit integers."""

from mica.ao import nn, quantization

__all__ = ["nn", "quantization"]
