"""Whole numbers of quotients of sizes: math.ceil(n / 2) is (n + 1) // 2, and math.floor(n * 0.75) is 3 * n // 4."""

import math
from fractions import Fraction

from mica.fx.experimental._expressions import WHOLE, Expression, Symbol, floordiv, make, modulo, whole

__all__ = ["rounded"]

# Factors with other denominators are numbers such as 0.1, which are not what they look like.
_LARGEST = 4096


def _fractions(expr):
    """{product of whole atoms: its factor as a fraction}; None of what is no sum of such."""
    total = {}
    for atoms, factor in expr.terms.items():
        if isinstance(factor, float) and not math.isfinite(factor):
            return None
        terms = {(): Fraction(factor)}
        for atom in atoms:
            terms = None if (made := _of_atom(atom)) is None else _product(terms, made)
            if terms is None:
                return None
        for key, value in terms.items():
            total[key] = total.get(key, Fraction(0)) + value
    return total if all(value.denominator <= _LARGEST for value in total.values()) else None


def _of_atom(atom):
    if isinstance(atom, Symbol):
        return None if atom.startswith("z") else {(atom,): Fraction(1)}  # that one is a float
    if atom.name == "TrueDiv" and atom.args[1].is_number and atom.args[1].number:
        made = _fractions(atom.args[0])
        by = Fraction(atom.args[1].number)
        return None if made is None else {key: value / by for key, value in made.items()}
    if atom.name in WHOLE:
        return {(atom,): Fraction(1)}
    is_whole = atom.name in ("FloorDiv", "Mod", "Max", "Min") and all(map(_is_whole, atom.args))
    return {(atom,): Fraction(1)} if is_whole else None


def _is_whole(expr):
    made = _fractions(expr)
    return made is not None and all(value.denominator == 1 for value in made.values())


def _product(left, right):
    made = {}
    for a, x in left.items():
        for b, y in right.items():
            key = tuple(sorted(a + b, key=str))
            made[key] = made.get(key, Fraction(0)) + x * y
    return made


def _quotient(expr):
    """(numerator, denominator) of whole numbers; None where there are none."""
    if len(expr.terms) == 1:
        ((atoms, factor),) = expr.terms.items()
        if factor == 1 and len(atoms) == 1 and getattr(atoms[0], "name", "") == "TrueDiv":
            above, below = atoms[0].args
            if not below.is_number:  # a size, which is above zero
                return (above, below) if _is_whole(above) and _is_whole(below) else None
    made = _fractions(expr)
    if made is None:
        return None
    below = math.lcm(*(value.denominator for value in made.values()))
    return Expression({key: int(value * below) for key, value in made.items()}), make(below)


def _of_float(expr, way, ranges):
    """The whole number near an expression whose factors, such as 0.7, stay floats."""
    low, _ = expr.bounds(ranges)
    if low is None or low < 0 or any(name.startswith("z") for name in expr.free_symbols):
        return None
    return whole({"ceil": "CeilToInt", "round": "RoundToInt"}.get(way, "TruncToInt"), expr)


def rounded(expr, way, ranges):
    """The expression as a whole number: "floor", "ceil", "trunc" or "round"; None where it has no such form."""
    found = _quotient(expr)
    if found is None:
        return _of_float(expr, way, ranges)
    above, below = found
    if way == "floor":
        return floordiv(above, below)
    if way == "ceil":
        return floordiv(above + below - 1, below)
    if way == "trunc":
        low, _ = above.bounds(ranges)
        return floordiv(above, below) if low is not None and low >= 0 else None
    if not below.is_number or (below.number > 2 and below.number % 2 == 0):
        return _of_float(expr, way, ranges)
    if below.number == 2:  # halves go to the even neighbour: 1.5 and 2.5 are 2
        return floordiv(above, below) + floordiv(modulo(above, make(4)), make(3))
    return floordiv(above * 2 + below, below * 2)
