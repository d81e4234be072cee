"""Open sizes as the program sees them while a graph is captured: the numbers that they are, which know what they follow from.

Python runs on every call, so that what it decides by a size is decided anew: a branch, a text, an entry of a dict. So a size
is an int. Only as an argument of a recorded call is it the expression that it was computed by.
"""

import math

from mica._functions.symbolic import SymFloat, SymInt

__all__ = ["OpenFloat", "OpenNumber", "symbolic"]


class _EqualTo(type):
    """The class of numbers that pass for others of a plain type: `type(n) == int` and `type(n) in (int, float)` hold."""

    def __eq__(cls, other):
        return other is cls or other is cls.__base__

    def __hash__(cls):
        return hash(cls.__base__)


class OpenNumber(int, metaclass=_EqualTo):
    """A whole number of this call, and the SymInt that it is in the graph."""

    def __new__(cls, value, sym):
        made = super().__new__(cls, value)
        made.sym = sym
        return made

    def __reduce__(self):
        return int, (int(self),)

    def __deepcopy__(self, memo):
        return int(self)


class OpenFloat(float, metaclass=_EqualTo):
    """A quotient or a multiple of an open size. As an argument of a call it is a plain number; whole numbers near it are open."""

    def __new__(cls, value, sym):
        made = super().__new__(cls, value)
        made.sym = sym
        return made

    def __reduce__(self):
        return float, (float(self),)

    def __deepcopy__(self, memo):
        return float(self)

    def _rounded(self, function):
        value, made = function(float(self)), function(self.sym)
        # The graph has the factors of several steps in one, whose product may be another float.
        is_same = isinstance(made, SymInt) and made.node.shape_env.size_hint(made.node._expr) == value
        return OpenNumber(value, made) if is_same else value

    def __trunc__(self):
        return self._rounded(math.trunc)

    def __floor__(self):
        return self._rounded(math.floor)

    def __ceil__(self):
        return self._rounded(math.ceil)

    def __round__(self, ndigits=None):
        return self._rounded(round) if ndigits is None else round(float(self), ndigits)


def symbolic(value):
    """The SymInt of a number that has one; other values as they are."""
    if type(value) is slice:
        return slice(*map(symbolic, (value.start, value.stop, value.step)))
    return value.sym if type(value) is OpenNumber else value


def _negated(self):
    made = -self.sym
    return OpenNumber(-int(self), made) if type(made) is not int else -int(self)


def _operation(base, name):
    plain = getattr(base, name)

    def operation(self, other):
        value = plain(self, other)
        if value is NotImplemented and isinstance(other, float):
            value = getattr(float, name)(float(self), float(other))
        if type(value) not in (int, float) or isinstance(other, bool):
            return value
        made = getattr(self.sym, name)(other.sym if isinstance(other, (OpenNumber, OpenFloat)) else other)
        if type(value) is int:
            return OpenNumber(value, made) if isinstance(made, SymInt) else value
        return OpenFloat(value, made) if isinstance(made, SymFloat) else value

    operation.__name__ = name
    return operation


_NAMES = ["__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"]
for _name in (*_NAMES, "__floordiv__", "__mod__", "__rfloordiv__", "__rmod__"):
    setattr(OpenNumber, _name, _operation(int, _name))
for _name in _NAMES:
    setattr(OpenFloat, _name, _operation(float, _name))
OpenNumber.__neg__ = _negated
