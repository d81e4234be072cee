"""Operators of torch.ops.aten that torch has as functions of its root."""

import mica
from mica._functions.wrapping import asks_as_called


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    operator = getattr(mica.ops.aten, name)

    def function(*args, **kwargs):
        return operator(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As torch.ops.aten.{name}."
    globals()[name] = asks_as_called(function)
    return globals()[name]
