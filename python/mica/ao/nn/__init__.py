"""Modules of quantized models."""

from mica.ao.nn import intrinsic, qat, quantized

__all__ = ["intrinsic", "qat", "quantizable", "quantized", "sparse"]


def __getattr__(name):
    if name in ("quantizable", "sparse"):
        import importlib

        return importlib.import_module(f"mica.ao.nn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
