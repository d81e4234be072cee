"""Open sizes as the program sees them while a graph is captured: the numbers that they are, which know what they follow from.

Python runs on every call, so that what it decides by a size is decided anew: a branch, a text, an entry of a dict. So a size
is an int. Only as an argument of a recorded call is it the expression that it was computed by.
"""

__all__ = ["OpenNumber", "symbolic"]


class _EqualToInt(type):
    """The class of OpenNumber: `type(n) == int` and `type(n) in (int, float)` hold."""

    def __eq__(cls, other):
        return other is cls or other is int

    def __hash__(cls):
        return hash(int)


class OpenNumber(int, metaclass=_EqualToInt):
    """A whole number of this call, and the SymInt that it is in the graph."""

    def __new__(cls, value, sym):
        made = super().__new__(cls, value)
        made.sym = sym
        return made

    def __reduce__(self):
        return int, (int(self),)

    def __deepcopy__(self, memo):
        return int(self)


def symbolic(value):
    """The SymInt of a number that has one; other values as they are."""
    if type(value) is slice:
        return slice(*map(symbolic, (value.start, value.stop, value.step)))
    return value.sym if type(value) is OpenNumber else value


def _negated(self):
    made = -self.sym
    return OpenNumber(-int(self), made) if type(made) is not int else -int(self)


def _operation(name):
    plain = getattr(int, name)

    def operation(self, other):
        value = plain(self, other)
        if type(value) is not int or not isinstance(other, int) or isinstance(other, bool):
            return value
        made = getattr(self.sym, name)(symbolic(other))
        return value if made is NotImplemented or type(made) is int else OpenNumber(value, made)

    operation.__name__ = name
    return operation


for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__floordiv__", "__mod__",
              "__rfloordiv__", "__rmod__"):  # fmt: skip
    setattr(OpenNumber, _name, _operation(_name))
OpenNumber.__neg__ = _negated
