"""Backends: libraries that bring a device type of their own; and, by torch's names, the libraries that torch computes with."""

import contextlib
import importlib
import sys
import types

from mica._C import _open_backend

_SUBMODULES = (
    "cpu",
    "cuda",
    "cudnn",
    "cusparselt",
    "mha",
    "miopen",
    "mkl",
    "mkldnn",
    "mps",
    "openmp",
    "opt_einsum",
    "quantized",
)


def open(path):
    """Open a backend's shared library; returns the name of the device type that it brings."""
    return _open_backend(path)


def set_flags(_fp32_precision="none"):
    """Say how exact float32 products, convolutions and recurrent layers have to be; returns what held before."""
    from mica.backends import _precision

    before = (_precision.get("generic"),)
    if _fp32_precision is not None:
        _precision.set("generic", "all", _fp32_precision)
    return before


@contextlib.contextmanager
def flags(fp32_precision="none"):
    """Set fp32_precision for a block of code."""
    before = set_flags(fp32_precision)
    try:
        yield
    finally:
        set_flags(*before)


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"mica.backends.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Module(types.ModuleType):
    @property
    def fp32_precision(self):
        """The precision of float32 for all libraries that have no setting of their own."""
        from mica.backends import _precision

        return _precision.get("generic")

    @fp32_precision.setter
    def fp32_precision(self, word):
        set_flags(word)


sys.modules[__name__].__class__ = _Module
