"""Functions of numbers that keep open ones open: sym_int, sym_max, sym_sum and their kin."""

import builtins
import math

import mica
from mica import _C
from mica._functions.symbolic import SymBool, SymFloat, SymInt, _expr_of, _expressions, _Number, _open
from mica._functions.wrapping import asked_among, asks_arguments


@asks_arguments
def sym_int(a):
    """The number as an int, rounded towards zero."""
    if isinstance(a, SymInt):
        return a
    if isinstance(a, SymFloat):
        return math.floor(a) if a >= 0 else math.ceil(a)
    return int(a)


@asks_arguments
def sym_float(a):
    """The number as a float."""
    return a if isinstance(a, SymFloat) else a.__sym_float__() if isinstance(a, SymInt) else float(a)


@asks_arguments
def sym_not(a):
    """The logical negation of a truth value, which may be an open one."""
    return a.__sym_not__() if isinstance(a, SymBool) else not a


@asks_arguments
def sym_max(a, b):
    """The larger of two numbers; a float if one is."""
    return _extreme(a, b, "maximum") if _is_open(a, b) else _as_either(a, b, builtins.max(a, b))


@asks_arguments
def sym_min(a, b):
    """The smaller of two numbers; a float if one is."""
    return _extreme(a, b, "minimum") if _is_open(a, b) else _as_either(a, b, builtins.min(a, b))


def _is_open(*values):
    return any(isinstance(value, (SymInt, SymFloat)) for value in values)


def _extreme(a, b, name):
    env = (a if _is_open(a) else b).node.shape_env
    kind = SymFloat if any(isinstance(v, (float, SymFloat)) for v in (a, b)) else SymInt
    make = _expressions().make
    return _open(getattr(_expressions(), name)(make(_expr_of(a)), make(_expr_of(b))), env, kind)


def _as_either(a, b, result):
    return float(result) if isinstance(a, float) or isinstance(b, float) else result


def sym_sum(args):
    """The sum of numbers."""
    if asked := asked_among(args):
        return _C._handle_torch_function(sym_sum, asked, args)
    return sum(args)


@asks_arguments
def sym_ite(b, t, f):
    """The second argument where the condition holds, otherwise the third."""
    return t if b else f


def sym_fresh_size(expr):
    return mica.sym_int(expr)


def _of_math(name):
    """A function of the module math. An open number is fixed to the value of the example, as float() does; a root is open."""

    def function(a):
        if name == "sqrt" and isinstance(a, _Number):
            return a**0.5
        return getattr(math, name)(a)

    function.__name__ = function.__qualname__ = f"_sym_{name}"
    function.__doc__ = f"math.{name} of a number."
    return asks_arguments(function)


for _name in ("acos", "asin", "atan", "cos", "cosh", "log2", "sin", "sinh", "sqrt", "tan", "tanh"):
    globals()[f"_sym_{_name}"] = _of_math(_name)
sym_sqrt = globals()["_sym_sqrt"]
