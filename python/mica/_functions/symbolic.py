"""Numbers that are left open while a graph is made: SymInt, SymFloat and SymBool. A ShapeEnv says what is known of them.

An open number has an expression in the sizes of inputs and, mostly, the value that it has in the example. Arithmetic
makes expressions. A question whose answer is needed (a branch, a range, an index) is answered by what is known of the
sizes, or else by the example, and the environment then keeps the answer as a guard.
"""

import math
import operator
import sys

import mica


class SymNode:
    """The facts behind an open number: its expression, its environment, its Python type."""

    __slots__ = ("_expr", "pytype", "shape_env")

    def __init__(self, expr, shape_env, pytype, hint=None, constant=None, fx_node=None):
        self._expr, self.shape_env, self.pytype = expr, shape_env, pytype

    @property
    def expr(self):
        return self.shape_env.replace(self._expr)

    @property
    def hint(self):
        return self.shape_env.size_hint(self._expr, allow_none=True)

    def has_hint(self):
        return self.hint is not None

    def require_hint(self, fallback=None):
        hint = self.hint
        return fallback if hint is None and fallback is not None else self.shape_env.size_hint(self._expr)

    def maybe_as_int(self):
        expr = self.expr
        return expr.number if getattr(expr, "is_number", False) else None

    def is_int(self):
        return self.pytype is int

    def is_float(self):
        return self.pytype is float

    def is_bool(self):
        return self.pytype is bool

    def is_symbolic(self):
        return True

    def is_constant(self):
        return False

    def guard_int(self, file, line):
        return int(self.shape_env.specialize(self._expr))

    def guard_bool(self, file, line):
        return bool(self.shape_env.evaluate_expr(self._expr))

    def __str__(self):
        return str(self.expr)

    __repr__ = __str__


class _Open:
    """The base of open numbers."""

    __slots__ = ("node",)

    def __init__(self, node):
        self.node = node

    def __repr__(self):
        return str(self.node.expr)

    __str__ = __repr__

    def __format__(self, spec):
        return format(str(self), spec)

    def __deepcopy__(self, memo):
        return self

    def __bool__(self):
        return self.node.shape_env.evaluate_expr(_relation("!=", self.node._expr, 0))

    def _is_open(self):
        return True


def _expressions():
    from mica.fx.experimental import _expressions as found

    return found


def _relation(sign, left, right):
    from mica.fx.experimental._truths import Relation

    return Relation.make(sign, _expressions().make(left), _expressions().make(right))


def _expr_of(value):
    return value.node._expr if isinstance(value, (SymInt, SymFloat)) else value


def _open(expr, env, kind):
    """The expression as an open number; a plain one if nothing in it is open."""
    expr = env.replace(expr)
    if expr.is_number:
        return float(expr.number) if kind is SymFloat else expr.number
    return kind(SymNode(expr, env, float if kind is SymFloat else int))


def _arithmetic(function, reflected=False):
    def method(self, other):
        if isinstance(other, mica.Tensor) or not isinstance(other, (int, float, SymInt, SymFloat)):
            return NotImplemented
        a, b = _expressions().make(_expr_of(self)), _expressions().make(_expr_of(other))
        if isinstance(other, bool):
            b = _expressions().make(int(other))
        if reflected:
            a, b = b, a
        is_float = function is _expressions().truediv or any(isinstance(v, (float, SymFloat)) for v in (self, other))
        return _open(function(a, b), self.node.shape_env, SymFloat if is_float else SymInt)

    return method


def _delayed(name):
    """A function of the expressions' module, which is imported when it is first used."""
    plain = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}

    def method(self, other, reflected=False):
        function = plain.get(name) or getattr(_expressions(), name)
        return _arithmetic(function, reflected)(self, other)

    return method, lambda self, other: method(self, other, True)


def _compared(sign):
    def method(self, other):
        if not isinstance(other, (int, float, SymInt, SymFloat)):
            return NotImplemented
        found = _relation(sign, _expr_of(self), _expr_of(other))
        return found if isinstance(found, bool) else SymBool(SymNode(found, self.node.shape_env, bool))

    return method


class _Number(_Open):
    __slots__ = ()

    __add__, __radd__ = _delayed("add")
    __sub__, __rsub__ = _delayed("sub")
    __mul__, __rmul__ = _delayed("mul")
    __floordiv__, __rfloordiv__ = _delayed("floordiv")
    __mod__, __rmod__ = _delayed("modulo")
    __truediv__, __rtruediv__ = _delayed("truediv")
    __eq__, __ne__ = _compared("=="), _compared("!=")
    __lt__, __le__, __gt__, __ge__ = _compared("<"), _compared("<="), _compared(">"), _compared(">=")

    def __neg__(self):
        return self * -1

    def __pos__(self):
        return self

    def __abs__(self):
        return self if self >= 0 else -self

    def __pow__(self, other):
        if isinstance(other, int) and 0 <= other <= 16:
            made = 1
            for _ in range(other):
                made = self * made
            return made
        if not isinstance(other, (int, float)):
            return float(self) ** other
        expr = _expressions().power(_expressions().make(self.node._expr), _expressions().make(other))
        return _open(expr, self.node.shape_env, SymFloat)

    def __rpow__(self, other):
        return other ** int(self)

    def __float__(self):
        return float(self.node.shape_env.specialize(self.node._expr))

    def __int__(self):
        return int(self.node.shape_env.specialize(self.node._expr))

    def __hash__(self):
        raise TypeError(f"unhashable type: {type(self).__name__}: two open numbers may be equal or not")


class SymInt(_Number):
    """A whole number that a graph leaves open, such as the size of an input."""

    __slots__ = ()

    def __index__(self):
        return int(self)

    def __trunc__(self):
        return self

    __floor__ = __ceil__ = __trunc__

    def __round__(self, ndigits=None):
        return self

    def __sym_float__(self):
        return SymFloat(SymNode(self.node._expr, self.node.shape_env, float))

    def is_integer(self):
        return True

    def bit_length(self):
        return int(self).bit_length()

    def __lshift__(self, other):
        return self * 2**other if isinstance(other, int) and other >= 0 else int(self) << int(other)

    def __rshift__(self, other):
        return self // 2**other if isinstance(other, int) and other >= 0 else int(self) >> int(other)

    def __divmod__(self, other):
        return self // other, self % other

    def __rdivmod__(self, other):
        return other // self, other % self


class SymFloat(_Number):
    """A number that a graph leaves open."""

    __slots__ = ()

    def is_integer(self):
        return float(self).is_integer()

    def _rounded(self, way, otherwise):
        """The whole number as an open one, which quotients of sizes and their multiples have; of others the example's."""
        from mica.fx.experimental._rounding import rounded

        env = self.node.shape_env
        made = rounded(env.replace(self.node._expr), way, env._ranges)
        return otherwise(float(self)) if made is None else _open(made, env, SymInt)

    def __trunc__(self):
        return self._rounded("trunc", math.trunc)

    def __int__(self):
        return int(self.__trunc__())  # relies on the whole number, which several sizes have

    def __floor__(self):
        return self._rounded("floor", math.floor)

    def __ceil__(self):
        return self._rounded("ceil", math.ceil)

    def __round__(self, ndigits=None):
        return self._rounded("round", round) if ndigits is None else round(float(self), ndigits)


class SymBool(_Open):
    """A truth that a graph leaves open."""

    __slots__ = ()

    def __bool__(self):
        env = self.node.shape_env
        if env.recorders:
            from mica._dynamo.full_graph import asserts

            if asserts(sys._getframe(1)):  # what the program asserts of data is believed, and asserted by the graph
                return env.state(self.node._expr)
        return env.evaluate_expr(self.node._expr)

    def __and__(self, other):
        return self._joined("and", other)

    def __or__(self, other):
        return self._joined("or", other)

    __rand__, __ror__ = __and__, __or__

    def _joined(self, word, other):
        if isinstance(other, bool):
            return (self if other else False) if word == "and" else (True if other else self)
        if not isinstance(other, SymBool):
            return NotImplemented
        from mica.fx.experimental._truths import Joined

        return SymBool(SymNode(Joined(word, (self.node._expr, other.node._expr)), self.node.shape_env, bool))

    def __sym_not__(self):
        return SymBool(SymNode(self.node._expr.negated(), self.node.shape_env, bool))

    __invert__ = __sym_not__

    def __int__(self):
        return int(bool(self))

    def __add__(self, other):
        return int(self) + other

    def __sub__(self, other):
        return int(self) - other

    def __rsub__(self, other):
        return other - int(self)

    def __mul__(self, other):
        return int(self) * other

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other):
        return bool(self) == bool(other)

    def __hash__(self):
        return hash(bool(self))
