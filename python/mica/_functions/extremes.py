"""max and min of Python while a graph is recorded: of tensors they are calls of torch, and of open sizes one expression."""

import builtins
import functools
import sys
import threading
import types

from mica.utils._shared_patch import SharedPatch

__all__ = ["recorded_extremes"]

_PLAIN = {"max": builtins.max, "min": builtins.min}
_here = threading.local()  # in how many such blocks this thread is


def _values(args):
    """The values to compare; None if the arguments are not a list of values."""
    if len(args) == 1:
        args = args[0] if isinstance(args[0], (list, tuple)) else ()
    return args if len(args) > 1 else None


def _recorded(name, values):
    """The greatest or least of values, some of which are recorded; None if none of them is."""
    import mica

    if any(isinstance(value, mica.Tensor) for value in values):
        if not all(isinstance(value, (mica.Tensor, int, float)) for value in values):
            return None
        return functools.reduce(functools.partial(_of_tensors, name), values)
    is_open = any(isinstance(value, (mica.SymInt, mica.SymFloat)) for value in values)
    if is_open and all(isinstance(value, (mica.SymInt, mica.SymFloat, int, float)) for value in values):
        return functools.reduce(mica.sym_max if name == "max" else mica.sym_min, values)
    return None


def _of_tensors(name, a, b):
    import mica

    if isinstance(a, mica.Tensor) and isinstance(b, mica.Tensor):
        return mica.maximum(a, b) if name == "max" else mica.minimum(a, b)
    if not isinstance(a, mica.Tensor) and not isinstance(b, mica.Tensor):
        return _PLAIN[name](a, b)
    tensor, number = (a, b) if isinstance(a, mica.Tensor) else (b, a)
    return mica.clamp(tensor, number) if name == "max" else mica.clamp(tensor, None, number)


def _is_programs():
    """Whether a program has called, and not Mica, which means the guards that comparisons become."""
    return not sys._getframe(2).f_globals.get("__name__", "").startswith("mica.")


def _in_place_of(name):
    plain = _PLAIN[name]

    @functools.wraps(plain)
    def extreme(*args, **kwargs):
        if not kwargs and getattr(_here, "depth", 0) and _is_programs():
            if len(args) == 1 and isinstance(args[0], types.GeneratorType):
                args = (list(args[0]),)
            values = _values(args)
            made = None if values is None else _recorded(name, values)
            if made is not None:
                return made
        return plain(*args, **kwargs)

    return extreme


_IN_PLACE = {name: _in_place_of(name) for name in _PLAIN}


def _set(functions):
    for name, function in functions.items():
        setattr(builtins, name, function)


class _Blocks(SharedPatch):
    """While some thread is in such a block, `max` and `min` are functions that look at who calls them."""

    def __init__(self):
        super().__init__(functools.partial(_set, _IN_PLACE), functools.partial(_set, _PLAIN))

    def __enter__(self):
        _here.depth = getattr(_here, "depth", 0) + 1
        super().__enter__()

    def __exit__(self, *exception):
        _here.depth -= 1
        super().__exit__(*exception)


recorded_extremes = _Blocks()
