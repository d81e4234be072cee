"""Numbers that a compiler would leave open: here all numbers are known."""

import builtins

import mica


class _Open(type):
    """The type of open numbers: no number is one."""

    def __instancecheck__(cls, instance):
        return False


class SymInt(metaclass=_Open):
    """An integer that is not known yet: nothing is one."""


class SymFloat(metaclass=_Open):
    """A number that is not known yet: nothing is one."""


class SymBool(metaclass=_Open):
    """A truth that is not known yet: nothing is one."""


def sym_int(a):
    """The number as an int, rounded towards zero."""
    return int(a)


def sym_float(a):
    """The number as a float."""
    return float(a)


def sym_not(a):
    """True for what is false, and False for what is true."""
    return not a


def sym_max(a, b):
    """The larger of two numbers; a float if one is."""
    return _as_either(a, b, builtins.max(a, b))


def sym_min(a, b):
    """The smaller of two numbers; a float if one is."""
    return _as_either(a, b, builtins.min(a, b))


def _as_either(a, b, result):
    return float(result) if isinstance(a, float) or isinstance(b, float) else result


def sym_sum(args):
    """The sum of numbers."""
    return sum(args)


def sym_ite(b, t, f):
    """The second argument where the condition holds, otherwise the third."""
    return t if b else f


def sym_fresh_size(expr):
    return mica.sym_int(expr)
