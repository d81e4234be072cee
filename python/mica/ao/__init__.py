"""Quantization and pruning of models: observers, fake quantization, masks, and modules that compute with 8-bit integers."""

from mica.ao import nn, quantization

__all__ = ["nn", "pruning", "quantization"]


def __getattr__(name):
    if name == "pruning":
        import importlib

        return importlib.import_module("mica.ao.pruning")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
