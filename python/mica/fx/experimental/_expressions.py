"""Whole-number expressions in sizes: sums of products of symbols and of quotients, in one normal form.

An expression is a polynomial whose variables are symbols and calls (FloorDiv, Mod, Max, Min, TrueDiv, FloatPow). Equal polynomials
are equal objects, so that comparing two sizes needs no search.
"""

import math

__all__ = [
    "Call",
    "Expression",
    "Symbol",
    "floordiv",
    "is_fractional",
    "make",
    "maximum",
    "minimum",
    "modulo",
    "power",
    "symbol",
    "truediv",
    "whole",
]


class Symbol(str):
    """A size that is left open, by its name."""

    __slots__ = ()

    def value(self, values):
        return values[self]


class Call:
    """A function of expressions that is no polynomial."""

    __slots__ = ("args", "name")

    def __init__(self, name, args):
        self.name, self.args = name, tuple(args)

    def __eq__(self, other):
        return isinstance(other, Call) and self.name == other.name and self.args == other.args

    def __hash__(self):
        return hash((self.name, self.args))

    def __str__(self):
        signs = {"FloorDiv": "//", "TrueDiv": "/"}
        if self.name in signs:
            left, right = (str(each) if each.is_simple() else f"({each})" for each in self.args)
            return f"({left}{signs[self.name]}{right})"
        return f"{self.name}({', '.join(map(str, self.args))})"

    def value(self, values):
        if self in values:  # a number that was invented for it (_worlds.py)
            return values[self]
        return FUNCTIONS[self.name](*(each.value(values) for each in self.args))


FUNCTIONS = {
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "TrueDiv": lambda a, b: a / b,
    "FloatPow": lambda a, b: float(a) ** b,
    "Max": max,
    "Min": min,
    "TruncToInt": math.trunc,
    "CeilToInt": math.ceil,
    "RoundToInt": round,
}
# Functions of one number, which may be a float, with a whole result.
WHOLE = frozenset(["TruncToInt", "CeilToInt", "RoundToInt"])


class Expression:
    """A polynomial: {product of atoms: factor}."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms):
        self.terms = {atoms: factor for atoms, factor in terms.items() if factor != 0}
        self._hash = hash(next(iter(self.terms))[0] if self.is_symbol else frozenset(self.terms.items()))

    # ---- what it is

    @property
    def is_number(self):
        return not self.terms or (len(self.terms) == 1 and () in self.terms)

    is_Integer = is_integer_number = is_number

    @property
    def number(self):
        """The value of an expression without symbols."""
        return self.terms.get((), 0)

    @property
    def is_symbol(self):
        return len(self.terms) == 1 and all(
            factor == 1 and len(atoms) == 1 and isinstance(atoms[0], Symbol) for atoms, factor in self.terms.items()
        )

    def is_simple(self):
        return self.is_number or self.is_symbol

    @property
    def free_symbols(self):
        found = set()
        for atoms in self.terms:
            for atom in atoms:
                found |= {atom} if isinstance(atom, Symbol) else set().union(*(e.free_symbols for e in atom.args))
        return found

    def value(self, values):
        """The number for {symbol: number}."""
        return sum(factor * math.prod(atom.value(values) for atom in atoms) for atoms, factor in self.terms.items())

    def substituted(self, changes):
        """The expression with other expressions in place of symbols."""
        total = make(0)
        for atoms, factor in self.terms.items():
            product = make(factor)
            for atom in atoms:
                if isinstance(atom, Symbol):
                    product *= changes.get(atom, symbol(atom))
                else:
                    product *= call(atom.name, *(each.substituted(changes) for each in atom.args))
            total += product
        return total

    subs = xreplace = lambda self, changes: self.substituted({Symbol(str(k)): make(v) for k, v in changes.items()})

    def bounds(self, ranges):
        """(least, greatest) for {symbol: (least, greatest)}, None where there is none."""
        low, high = 0, 0
        for atoms, factor in self.terms.items():
            a, b = _product([_atom_bounds(atom, ranges) for atom in atoms])
            if factor < 0:
                a, b = b, a
            low = None if low is None or a is None else low + a * factor
            high = None if high is None or b is None else high + b * factor
        return low, high

    # ---- arithmetic

    def __add__(self, other):
        other = make(other)
        terms = dict(self.terms)
        for atoms, factor in other.terms.items():
            terms[atoms] = terms.get(atoms, 0) + factor
        return Expression(terms)

    def __mul__(self, other):
        other, terms = make(other), {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                atoms = tuple(sorted(left + right, key=str))
                terms[atoms] = terms.get(atoms, 0) + a * b
        return Expression(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + make(other) * -1

    def __rsub__(self, other):
        return make(other) - self

    def __floordiv__(self, other):
        return floordiv(self, make(other))

    def __mod__(self, other):
        return modulo(self, make(other))

    def __eq__(self, other):
        other = (
            symbol(other) if isinstance(other, Symbol) else make(other) if isinstance(other, (int, float)) else other
        )
        return isinstance(other, Expression) and self.terms == other.terms

    def __hash__(self):
        return self._hash

    # ---- text

    def __str__(self):
        parts = []
        for atoms, factor in sorted(self.terms.items(), key=lambda item: (not item[0], [str(a) for a in item[0]])):
            names = [str(atom) for atom in atoms]
            powers = [
                name if names.count(name) == 1 else f"{name}**{names.count(name)}" for name in dict.fromkeys(names)
            ]
            text = "*".join(
                powers if factor == 1 and powers else [str(abs(factor))] * (abs(factor) != 1 or not powers) + powers
            )
            sign = "-" if factor < 0 else "+"
            parts.append(f" {sign} {text}" if parts else ("-" if factor < 0 else "") + text)
        return "".join(parts) or "0"

    __repr__ = __str__

    def in_sympys_words(self):
        """The text that torch's archives hold: how sympy would make the expression."""
        parts = []
        for atoms, factor in self.terms.items():
            factors = ([] if factor == 1 and atoms else [_number_text(factor)]) + [_atom_text(atom) for atom in atoms]
            parts.append(factors[0] if len(factors) == 1 else f"Mul({', '.join(factors)})")
        return "Integer(0)" if not parts else parts[0] if len(parts) == 1 else f"Add({', '.join(parts)})"


def _number_text(number):
    return f"Integer({number})" if isinstance(number, int) else f"Float('{number!r}')"


def _atom_text(atom):
    if isinstance(atom, Symbol) and atom.startswith("z"):
        return f"Symbol('{atom}')"  # it comes from data, and is not a whole number
    if isinstance(atom, Symbol):
        return f"Symbol('{atom}', {'positive=True, ' if not atom.startswith('u') else ''}integer=True)"
    return f"{atom.name}({', '.join(each.in_sympys_words() for each in atom.args)})"


def _product(bounds):
    if len(bounds) == 1:
        return bounds[0]
    low, high = 1, 1
    for a, b in bounds:
        if a is None or a < 0:
            return None, None  # sizes are not negative; an expression that may be negative has no bounds here
        low = low * a
        high = None if high is None or b is None else high * b
    return low, high


def _atom_bounds(atom, ranges):
    if isinstance(atom, Symbol):
        return ranges.get(atom, (0, None))
    if atom.name in WHOLE:
        return tuple(None if end is None else FUNCTIONS[atom.name](end) for end in atom.args[0].bounds(ranges))
    (a, b), (c, d) = (each.bounds(ranges) for each in atom.args)
    if atom.name == "FloorDiv" and a is not None and a >= 0 and c is not None and c > 0:
        return (0 if d is None else a // d), (None if b is None else b // c)
    if atom.name == "Mod" and c is not None and c > 0:
        return 0, None if d is None else d - 1
    if atom.name == "Max":
        lows = [each for each in (a, c) if each is not None]
        return (max(lows) if lows else None), (None if b is None or d is None else max(b, d))
    if atom.name == "Min":
        highs = [each for each in (b, d) if each is not None]
        return (None if a is None or c is None else min(a, c)), (min(highs) if highs else None)
    return None, None


def is_fractional(expr):
    """Whether an expression has quotients or powers that are no whole numbers."""
    calls = [atom for atoms in expr.terms for atom in atoms if isinstance(atom, Call)]
    return any(
        call.name in ("TrueDiv", "FloatPow") or (call.name not in WHOLE and any(map(is_fractional, call.args)))
        for call in calls
    ) or any(isinstance(factor, float) for factor in expr.terms.values())


def make(value):
    """A number as an expression; an expression as it is."""
    return value if isinstance(value, Expression) else Expression({(): value})


def symbol(name):
    return Expression({(Symbol(name),): 1})


def _divided(a, b):
    """a / b where that is a polynomial of whole factors; None otherwise."""
    if len(b.terms) != 1:
        return make(1) if a == b else None
    ((divisor, factor),) = b.terms.items()
    terms = {}
    for atoms, each in a.terms.items():
        rest = list(atoms)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if each % factor:
            return None
        terms[tuple(rest)] = each // factor
    return Expression(terms)


def floordiv(a, b):
    if b == 0:
        raise ZeroDivisionError("division of a size by zero")
    if a.is_number and b.is_number:
        return make(a.number // b.number)
    whole = _divided(a, b)
    if whole is not None:
        return whole
    if b.is_number and b.number > 0:  # (4n + r) // 2 is 2n + r // 2
        outside = {atoms: f // b.number for atoms, f in a.terms.items() if atoms and f % b.number == 0}
        if outside:
            inside = Expression({atoms: f for atoms, f in a.terms.items() if atoms not in outside})
            return Expression(outside) + floordiv(inside, b)
    return Expression({(Call("FloorDiv", (a, b)),): 1})


def modulo(a, b):
    if a.is_number and b.is_number:
        return make(a.number % b.number)
    if _divided(a, b) is not None:
        return make(0)
    return Expression({(Call("Mod", (a, b)),): 1})


def truediv(a, b):
    if a.is_number and b.is_number:
        return make(a.number / b.number)
    return Expression({(Call("TrueDiv", (a, b)),): 1})


def power(a, b):
    """A float: a power by a number that is not small and whole."""
    if a.is_number and b.is_number:
        return make(float(a.number) ** b.number)
    return Expression({(Call("FloatPow", (a, b)),): 1})


def whole(name, a):
    """A whole number near a float, by one of the functions in WHOLE."""
    return make(FUNCTIONS[name](a.number)) if a.is_number else Expression({(Call(name, (a,)),): 1})


def maximum(a, b):
    if a == b or (a.is_number and b.is_number):
        return a if a == b else make(max(a.number, b.number))
    return Expression({(Call("Max", sorted((a, b), key=str)),): 1})


def minimum(a, b):
    if a == b or (a.is_number and b.is_number):
        return a if a == b else make(min(a.number, b.number))
    return Expression({(Call("Min", sorted((a, b), key=str)),): 1})


def call(name, *args):
    if name in WHOLE:
        return whole(name, *args)
    functions = {
        "FloorDiv": floordiv,
        "Mod": modulo,
        "TrueDiv": truediv,
        "FloatPow": power,
        "Max": maximum,
        "Min": minimum,
    }
    return functions[name](*args)
