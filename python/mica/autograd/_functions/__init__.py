"""Functions with a backward of their own that old programs call."""

from mica.autograd._functions.tensor import Resize, Type

__all__ = ["Resize", "Type"]
