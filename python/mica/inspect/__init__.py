"""See through a program: the anatomy of a tensor, the copies nobody asked for, the memory that is held and by which line."""

from mica.inspect._copies import Copy, copies
from mica.inspect._estimate import Estimate, estimate
from mica.inspect._explain import Explanation, explain
from mica.inspect._memory import memory
from mica.inspect._operations import operations

__all__ = [
    "Copy",
    "Estimate",
    "Explanation",
    "check",
    "collectives",
    "copies",
    "estimate",
    "explain",
    "memory",
    "operations",
    "ranges",
    "roofline",
]

_LATER = {
    "check": "_check",
    "collectives": "_collectives",
    "ranges": "_ranges",
    "roofline": "_roofline",
}  # read when they are asked for


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"mica.inspect.{_LATER[name]}"), name)
    return value
