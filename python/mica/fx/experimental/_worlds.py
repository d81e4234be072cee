"""How the sizes that the engine computes become expressions.

The engine's shape rules are written for numbers. So a tensor with open sizes is computed in several worlds at once: in
each world every symbol has another value, and the last world is the example. A size of a result is then known as one
number per world, and the expression is the one among few forms that gives all of them. The first world's numbers are
primes that no program mentions: where a composite operation hands a size on, the number alone tells which size it is.

What min, max and % make of sizes would be one of their arguments, or a small number, in every invented world. So it has numbers
of its own there: larger than the arguments for max, and with the right remainder for %.
"""

import itertools
from fractions import Fraction

from mica.fx.experimental._expressions import Expression, Symbol, floordiv, make, symbol

__all__ = ["FEW_OPEN", "MOST_OPEN", "Worlds"]

# Few primes, such that no multiple of 500 or 256 and no usual size of a vocabulary lies within 64 of them. Their halves
# and quarters, which convolutions make of them, are not numbers that programs use either.
_PRIMES = (
    31397, 30391, 29629, 28607, 27827, 27211, 26297, 25693, 24923, 24251, 23633, 22921, 22193, 21589, 20921, 20297,
    32429, 31907, 31159, 30911, 30649, 30071, 29867, 29363, 28817, 28351, 28087, 27583, 26813, 25933, 25423, 25219,
    24709, 23929, 23431, 23227, 22717, 22433, 21929, 21383, 20663, 20089, 19867, 19609, 19391, 19121, 18869, 18617,
)  # fmt: skip
# Smaller ones: a tensor of five sizes of five digits, or of four that are multiples, would have more elements than the
# engine counts. They lie apart from multiples of 128 and of 500, and their halves from multiples of 64 and of 100.
_SMALLER_PRIMES = (
    2239, 2213, 2153, 2129, 2099, 2069, 2029, 1979, 1951, 1901, 1877, 1847, 1823, 1759, 1733, 1709, 1637, 1583, 1559, 1483,
    1459, 1433, 1381, 1327, 1259, 1231, 1181, 1129, 1069,
)  # fmt: skip
FEW_OPEN = 4  # so many sizes of a tensor may be open with the usual numbers
MOST_OPEN = 5  # and so many with smaller ones
_COUNT = 9  # worlds beside that of the example
_SMALL = 256  # quotients below are numbers that programs may mention, too


def _offset(world, index):
    return 0 if world == 0 else (world * world * 7 + world * (index * 11 + 1) + index * world * 5 // 3) % 97 + world


class Worlds:
    """The values of symbols in every world, and the expressions that are known by their values."""

    def __init__(self):
        self.values = [{} for _ in range(_COUNT + 1)]
        self._by_vector, self._by_value = {}, {}
        self._primes, self._fixed = list(_PRIMES), set()
        self._atoms, self._unhinted, self._ready = {}, set(), set()  # symbols and calls; those without an example
        self._waiting = {}  # symbols that get their numbers when they are first needed -> what to avoid
        # Larger numbers may have been invented; a number that is as far from a size is the size and the difference.
        self.large, self._near = 4096, 64

    def __len__(self):
        return len(self.values)

    def _usable(self, avoid):
        taken = [size for size in avoid if size]
        return [p for p in self._primes if not any(size % p == 0 or abs(size - p) <= self._near for size in taken)]

    def room(self, avoid=()):
        """How many symbols can still be added."""
        return len(self._usable(avoid))

    def begin_elsewhere(self):
        """Invent other numbers, before there are symbols."""
        self._primes.reverse()

    def begin_small(self):
        """Invent smaller numbers, before there are symbols."""
        if not self._atoms and not self.is_small:
            smaller = _SMALLER_PRIMES if self._primes[0] == _PRIMES[0] else reversed(_SMALLER_PRIMES)
            self._primes = [*smaller, *self._primes]
            self.large, self._near = 1000, 8

    @property
    def is_small(self):
        return self.large < 4096

    def add(self, name, hint, avoid=()):
        """A new symbol."""
        prime, index = self._next(avoid)
        for world in range(_COUNT):
            self.values[world][name] = prime + _offset(world, index)
        # Without an example, the last world is one more with invented numbers.
        self.values[_COUNT][name] = prime + _offset(_COUNT, index) if hint is None else hint
        if hint is None:
            self._unhinted.add(name)
        self._atoms[name] = symbol(name)
        self._note(self._atoms[name])

    def add_later(self, name, avoid=()):
        """A new symbol without an example, which need not be the size of any tensor."""
        self._waiting[name] = avoid

    def _next(self, avoid):
        prime = next(iter(self._usable(avoid)), None)
        if prime is None:
            raise NotImplementedError(f"a ShapeEnv of Mica holds up to {len(_PRIMES)} open sizes")
        index = len(self._atoms)
        self._primes.remove(prime)
        return prime, index

    def prepare(self, expr):
        """Give numbers to what an expression is made of."""
        if isinstance(expr, int) or expr in self._ready:
            return
        self._ready.add(expr)
        for atom in sorted({atom for atoms in expr.terms for atom in atoms}, key=str):
            if isinstance(atom, Symbol):
                if atom in self._waiting:
                    self.add(atom, None, self._waiting.pop(atom))
                continue
            for each in atom.args:
                self.prepare(each)
            if atom not in self._atoms and self._is_opaque(atom):
                self._invent(atom)

    def _is_opaque(self, call):
        if call.name == "FloorDiv":
            return abs(call.value(self.values[0])) < _SMALL
        return call.name in ("Max", "Min", "Mod")

    def _invent(self, call):
        """Numbers of its own for what a function makes of sizes."""
        is_of_example = not self._unhinted & Expression({(call,): 1}).free_symbols
        real = [call.value(values) for values in self.values]
        prime, index = self._next(())
        for world in range(_COUNT if is_of_example else _COUNT + 1):
            number = prime + _offset(world, index)
            if call.name == "Max":
                number += real[world]
            elif call.name == "Mod" and call.args[1].is_number:
                number += (real[world] - number) % call.args[1].number
            self.values[world][call] = number
        if is_of_example:
            self.values[_COUNT][call] = real[_COUNT]
        self._atoms[call] = Expression({(call,): 1})
        self._note(self._atoms[call])

    def derive(self, name, expr):
        """A new symbol that is an expression of others in every world. Its numbers are not known by it."""
        self.prepare(expr)
        for values in self.values:
            values[name] = expr.value(values)
        self._fixed.add(name)

    def is_fixed(self, name):
        return name in self._fixed

    def fix(self, name, expr):
        """A symbol is an expression of others in every world."""
        for values in self.values:
            values[name] = expr.value(values)
        self._fixed.add(name)
        self._by_vector, self._by_value = {}, {}
        for other, each in self._atoms.items():
            if other not in self._fixed:
                self._note(each)

    def vector(self, expr):
        self.prepare(expr)
        return tuple(expr.value(values) for values in self.values)

    def number(self, expr, world=0):
        """The value in a world of an expression; of a number, itself."""
        self.prepare(expr)
        return expr if isinstance(expr, int) else expr.value(self.values[world])

    def numbers(self):
        """[(number of the first world, the size that it stands for)]."""
        return [(number, expr) for number, expr in self._by_value.items() if number > self.large]

    def noted(self, expr):
        """The first world's value of an expression, which is known by it from now on."""
        self.prepare(expr)
        return expr.number if expr.is_number else self._note(expr).value(self.values[0])

    def _note(self, expr):
        vector = self.vector(expr)
        self._by_vector.setdefault(vector, expr)
        self._by_value.setdefault(vector[0], expr)
        return expr

    def known(self, number, near=True):
        """The size that a number of the first world stands for; the number itself if it stands for none.

        `near`: a number close to one that stands for a size is that size and the difference, as n - 1 is.
        """
        if number in self._by_value:
            return self._by_value[number]
        found, rest = make(1), number
        for name, atom in self._atoms.items():
            value = self.values[0][name]
            while name not in self._fixed and rest and rest % value == 0:
                rest //= value
                found = found * atom
        if not found.is_number:
            return self._note(found * make(self.known(rest, near) if abs(rest) > 64 else rest))
        # The elements of rows that sums or quotients count. Products of sizes come first: a half of one may be twice another.
        others = [
            (value, e)
            for value, e in self._by_value.items()
            if value > self.large and not e.is_symbol and number % value == 0
        ]
        for value, expr in others:
            if (other := self._by_value.get(number // value)) is not None:
                return self._note(expr * other)
        for (value, expr), (second, other) in itertools.combinations_with_replacement(others, 2):
            rest, more = divmod(number, value * second)
            if not more and (third := self._by_value.get(rest)) is not None:
                return self._note(expr * other * third)
        for value, expr in sorted(others, key=lambda each: -each[0]):
            if 0 < number // value <= 4096:
                return self._note(expr * (number // value))
        for value, expr in list(self._by_value.items()) if near else ():
            if value > self.large and abs(number - value) <= self._near:
                return expr + (number - value)  # not noted, because it may be a number of the program's after all
        return number

    def fitting(self, vector, near):
        """The expression whose values are those of the vector, made of those that are near; None if none is found."""
        if len(set(vector)) == 1:
            return vector[0]
        found = self._by_vector.get(vector)
        if found is None:
            found = self._searched(vector, near)
        return None if found is None else self._note(found)

    def _searched(self, vector, near):
        candidates = {self.vector(each): each for each in near if not isinstance(each, int)}
        count = len(candidates)
        candidates |= {self.vector(atom): atom for name, atom in self._atoms.items() if name not in self._fixed}
        for values, expr in candidates.items():
            made = _linear(vector, values, expr) or _quotient(vector, values, expr)
            if made is not None:
                return made
        pairs = list(candidates.items())
        for i, (a, left) in enumerate(pairs):
            for b, right in pairs[i:]:
                for values, expr in (
                    (tuple(x * y for x, y in zip(a, b, strict=True)), left * right),
                    (tuple(x + y for x, y in zip(a, b, strict=True)), left + right),
                    (tuple(x - y for x, y in zip(a, b, strict=True)), left - right),
                ):
                    made = _linear(vector, values, expr)
                    if made is not None:
                        return made
        for a, left in pairs:
            for b, right in pairs:
                if all(v * y == x for v, x, y in zip(vector, a, b, strict=True)):
                    return floordiv(left, right)
        few = pairs if len(pairs) <= 8 else pairs[:count]
        if len(few) <= 8:
            for (a, p), (b, q), (c, r) in itertools.combinations_with_replacement(few, 3):
                made = _linear(vector, tuple(x * y * z for x, y, z in zip(a, b, c, strict=True)), p * q * r)
                if made is not None:
                    return made
        return _combination(vector, pairs[:6])


def _combination(vector, pairs):
    """A sum of whole multiples of expressions and a number, which all worlds decide together: 2 * a + b + 1."""
    rows = [
        [Fraction(x) for x in (*row, 1, value)]
        for *row, value in zip(*(values for values, _ in pairs), vector, strict=True)
    ]
    done = {}  # column -> row; columns that follow from others are left out
    for column in range(len(pairs) + 1):
        at = len(done)
        pivot = next((i for i in range(at, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [x / rows[at][column] for x in rows[at]]
        for i, row in enumerate(rows):
            if i != at and row[column]:
                rows[i] = [x - row[column] * y for x, y in zip(row, rows[at], strict=True)]
        done[column] = at
    factors = {column: rows[at][-1] for column, at in done.items()}
    if any(row[-1] for row in rows[len(done) :]) or any(factor.denominator != 1 for factor in factors.values()):
        return None
    terms = [expr for _, expr in pairs] + [make(1)]
    return sum((terms[column] * int(factor) for column, factor in factors.items()), make(0))


def _linear(vector, values, expr):
    """expr * factor + number, with whole numbers."""
    if values[0] == values[1]:
        return None
    factor, rest = divmod(vector[0] - vector[1], values[0] - values[1])
    number = vector[0] - factor * values[0]
    if rest or factor == 0 or any(v != factor * x + number for v, x in zip(vector, values, strict=True)):
        return None
    return expr * factor + number


def _quotient(vector, values, expr):
    """(expr + number) // divisor."""
    if not vector[0] or values[0] <= vector[0]:
        return None
    about = values[0] // vector[0]
    if about > 4096:  # a divisor that no program writes
        return None
    for divisor in range(max(2, about - 1), about + 3):
        start = vector[0] * divisor - values[0]
        for number in range(start, start + divisor):
            if all((x + number) // divisor == v for v, x in zip(vector, values, strict=True)):
                return floordiv(expr + number, make(divisor))
    return None
