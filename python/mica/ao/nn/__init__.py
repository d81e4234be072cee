"""Modules of quantized models."""

from mica.ao.nn import intrinsic, qat, quantized

__all__ = ["intrinsic", "qat", "quantizable", "quantized"]


def __getattr__(name):
    if name == "quantizable":
        import importlib

        return importlib.import_module("mica.ao.nn.quantizable")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
