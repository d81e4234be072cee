"""How the sizes that the engine computes become expressions.

The engine's shape rules are written for numbers. So a tensor with open sizes is computed in several worlds at once: in
each world every symbol has another value, and the last world is the example. A size of a result is then known as one
number per world, and the expression is the one among few forms that gives all of them. The first world's numbers are
primes that no program mentions: where a composite operation hands a size on, the number alone tells which size it is.
"""

from mica.fx.experimental._expressions import floordiv, make, symbol

__all__ = ["Worlds"]

# Few primes, such that no multiple of 500 or 256 and no usual size of a vocabulary lies within 64 of them. Their halves
# and quarters, which convolutions make of them, are not numbers that programs use either.
_PRIMES = (
    31397, 30391, 29629, 28607, 27827, 27211, 26297, 25693, 24923, 24251, 23633, 22921, 22193, 21589, 20921, 20297,
)  # fmt: skip
_COUNT = 9  # worlds beside that of the example


def _offset(world, index):
    return 0 if world == 0 else (world * world * 7 + world * (index * 11 + 1) + index * world * 5 // 3) % 97 + world


class Worlds:
    """The values of symbols in every world, and the expressions that are known by their values."""

    def __init__(self):
        self.values = [{} for _ in range(_COUNT + 1)]
        self._by_vector, self._by_value = {}, {}
        self._primes, self._fixed = list(_PRIMES), set()

    def __len__(self):
        return len(self.values)

    def _usable(self, avoid):
        taken = [size for size in avoid if size]
        return [p for p in self._primes if not any(size % p == 0 or abs(size - p) <= 64 for size in taken)]

    def room(self, avoid=()):
        """How many symbols can still be added."""
        return len(self._usable(avoid))

    def begin_elsewhere(self):
        """Invent other numbers, before there are symbols."""
        self._primes.reverse()

    def add(self, name, hint, avoid=()):
        """A new symbol."""
        prime = next(iter(self._usable(avoid)), None)
        if prime is None:
            raise NotImplementedError(f"a ShapeEnv of Mica holds up to {len(_PRIMES)} open sizes")
        index = len(_PRIMES) - len(self._primes)
        self._primes.remove(prime)
        for world in range(_COUNT):
            self.values[world][name] = prime + _offset(world, index)
        # Without an example, the last world is one more with invented numbers.
        self.values[_COUNT][name] = prime + _offset(_COUNT, index) if hint is None else hint
        self._note(symbol(name))

    def is_fixed(self, name):
        return name in self._fixed

    def fix(self, name, expr):
        """A symbol is an expression of others in every world."""
        for values in self.values:
            values[name] = expr.value(values)
        self._fixed.add(name)
        self._by_vector, self._by_value = {}, {}
        for other in self.values[0]:
            if other not in self._fixed:
                self._note(symbol(other))

    def vector(self, expr):
        return tuple(expr.value(values) for values in self.values)

    def number(self, expr, world=0):
        """The value in a world of an expression; of a number, itself."""
        return expr if isinstance(expr, int) else expr.value(self.values[world])

    def numbers(self):
        """[(number of the first world, the size that it stands for)]."""
        return [(number, expr) for number, expr in self._by_value.items() if number > 4096]

    def noted(self, expr):
        """The first world's value of an expression, which is known by it from now on."""
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
        for name, value in self.values[0].items():
            while name not in self._fixed and rest and rest % value == 0:
                rest //= value
                found = found * symbol(name)
        if not found.is_number:
            return self._note(found * make(self.known(rest, near) if abs(rest) > 64 else rest))
        for value, expr in list(self._by_value.items()) if near else ():
            if value > 4096 and abs(number - value) <= 64:
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
        candidates |= {self.vector(symbol(name)): symbol(name) for name in self.values[0] if name not in self._fixed}
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
        if len(pairs) <= 8:
            triples = [(x, y, z) for x in pairs for y in pairs for z in pairs]
            for (a, p), (b, q), (c, r) in triples:
                made = _linear(vector, tuple(x * y * z for x, y, z in zip(a, b, c, strict=True)), p * q * r)
                if made is not None:
                    return made
        return None


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
