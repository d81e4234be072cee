"""Operators of torch.ops beside those of the table: torch's schemas of them, and functions for some.

Packages name operators to say something about them (which to save, which to shard) far more often than they call them.
All of torch's can be named. Those that have a function here compute; a call of another says that Mica does not have it.
"""

import functools
import os

# Operations of the table that have these names and take other arguments than torch's operators do.
OTHERWISE = frozenset(["_cdist_forward", "elu_backward", "leaky_relu_backward", "log_sigmoid_backward"])


@functools.cache
def _lines():
    found = {}
    with open(os.path.join(os.path.dirname(__file__), "aten_names.txt"), encoding="utf-8") as file:
        for line in file:
            found.setdefault(line.partition("(")[0].partition(".")[0], []).append(line.rstrip("\n"))
    return found


def schemas(namespace, name):
    """torch's schemas of an operator, as text with its namespace."""
    if namespace == "aten":
        return [f"aten::{line}" for line in _lines().get(name, [])]
    return _lines().get(f"{namespace}::{name}", [])


def names():
    """The names of the operators of aten."""
    return [name for name in _lines() if "::" not in name]


def function(name, namespace="aten"):
    """The function that computes an operator that the table does not have; None if there is none."""
    from mica._operators import aten_functions, prims, ranges

    spaces = {"aten": aten_functions, "prims": prims, "profiler": ranges}
    return spaces[namespace].find(name) if namespace in spaces else None


def function_of_overload(name, namespace="aten"):
    """The function that computes one overload, where the others of its operator are computed by another one; else None."""
    from mica._operators import aten_functions

    return aten_functions.OF_OVERLOADS.get(name) if namespace == "aten" else None


class Kernel:
    """Calls a function with the arguments of a schema; without a function, says that there is none."""

    def __init__(self, schema, function):
        self.schema, self.function = schema, function
        self._outs = [a.name for a in schema.arguments if a.is_out]
        self._first = schema.arguments[0].name if schema.arguments else ""

    def __call__(self, /, *args, **kwargs):
        if self.function is None:
            raise NotImplementedError(f"{self.schema.name} is not in Mica: torch declares it as {self.schema}")
        outs = [kwargs.pop(name) for name in self._outs if name in kwargs]
        if outs:
            kwargs["out"] = outs[0] if len(outs) == 1 else tuple(outs)
        if self._first in kwargs:
            args = (kwargs.pop(self._first), *args)
        return self.function(*args, **kwargs)
