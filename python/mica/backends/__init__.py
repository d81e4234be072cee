"""Backends: libraries that bring a device type of their own; and, by torch's names, the libraries that torch computes with."""

import importlib

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
fp32_precision = "none"  # a setting of torch's that is kept


def open(path):
    """Open a backend's shared library; returns the name of the device type that it brings."""
    return _open_backend(path)


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"mica.backends.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
