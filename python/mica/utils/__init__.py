"""What programs use beside tensors."""

import importlib

from mica.utils import dlpack, hooks

_SUBMODULES = ("benchmark", "checkpoint", "data", "flop_counter", "model_zoo")

__all__ = ["dlpack", "hooks", *_SUBMODULES]


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"mica.utils.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
