"""Sobol sequences: points that fill a cube more evenly than random ones.

The direction numbers are those that S. Joe and F. Y. Kuo found (Constructing Sobol sequences with better two-dimensional projections, SIAM
J. Sci. Comput. 30, 2008), up to 21,201 dimensions. sobol_numbers.bin holds them, under
their authors' licence; scripts/sobol_numbers.py says how.
"""

from pathlib import Path

import mica
from mica.utils._device import set_device

__all__ = ["SobolEngine"]

# How many primitive polynomials there are of degree 1, 2, ...
_POLYNOMIALS = (1, 1, 2, 2, 6, 6, 18, 16, 48, 60, 176, 144, 630, 756, 1800, 2048, 7710, 7776)


def _table(count):
    """The first `count` polynomials, as integers of their coefficients, each with its initial numbers."""
    data = (Path(__file__).parent / "sobol_numbers.bin").read_bytes()
    start = 0
    for degree, polynomials in enumerate(_POLYNOMIALS, 1):
        width = degree - 1 + degree * (degree - 1) // 2
        for _ in range(min(polynomials, count)):
            end = start + width
            record = int.from_bytes(data[start // 8 : -(-end // 8)], "big") >> (-end % 8)
            numbers = []
            for j in range(degree - 1, 0, -1):
                numbers.append((record & ((1 << j) - 1)) << 1 | 1)
                record >>= j
            inner = record & ((1 << (degree - 1)) - 1)
            yield 1 << degree | inner << 1 | 1, [1, *reversed(numbers)]
            start = end
        count -= min(polynomials, count)


def _direction_numbers(dimension, bits):
    """One row of integers for each dimension, scaled to `bits` bits."""
    rows = [[1 << (bits - 1 - j) for j in range(bits)]]
    for polynomial, numbers in _table(dimension - 1):
        degree = polynomial.bit_length() - 1
        for j in range(degree, bits):
            new = numbers[j - degree]
            for k in range(degree):
                if polynomial >> (degree - 1 - k) & 1:
                    new ^= numbers[j - k - 1] << (k + 1)
            numbers.append(new)
        rows.append([number << (bits - 1 - j) for j, number in enumerate(numbers[:bits])])
    return mica.tensor(rows, dtype=mica.int64)


class SobolEngine:
    """Points of a Sobol sequence in the unit cube of up to 21,201 dimensions, scrambled if asked for."""

    MAXBIT = 30
    MAXDIM = 21201

    @set_device("cpu")
    def __init__(self, dimension, scramble=False, seed=None):
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.sobolstate = _direction_numbers(dimension, self.MAXBIT)
        self.num_generated = 0
        self.shift = mica.zeros(dimension, dtype=mica.int64)
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi.double() / 2**self.MAXBIT).reshape(1, -1)

    def _scramble(self):
        generator = None
        if self.seed is not None:
            generator = mica.Generator()
            generator.manual_seed(self.seed)
        bits = mica.randint(2, (self.dimension, self.MAXBIT), generator=generator)
        self.shift = (bits << mica.arange(self.MAXBIT)).sum(1)
        lower = mica.randint(2, (self.dimension, self.MAXBIT, self.MAXBIT), generator=generator).tril()
        index = mica.arange(self.MAXBIT)
        lower[:, index, index] = 1
        # Each direction number, a column of bits with the highest first, is multiplied by the matrix modulo 2.
        places = mica.arange(self.MAXBIT - 1, -1, -1)
        columns = (self.sobolstate[:, None, :] >> places[:, None]) & 1
        mixed = (lower.double() @ columns.double()).long() & 1
        self.sobolstate = (mixed << places[:, None]).sum(1)

    @set_device("cpu")
    def _points(self, n, start):
        """The n points after point `start` as integers.

        Point m is the exclusive or of the direction numbers at the bits of m's Gray code.
        """
        code = mica.arange(start + 1, start + 1 + n)
        code = code ^ (code >> 1) ^ (start ^ (start >> 1))
        made = self.quasi.expand(n, -1).clone()
        for bit in range(self.MAXBIT):
            made ^= ((code >> bit) & 1)[:, None] * self.sobolstate[:, bit]
        if n:
            self.quasi = made[-1].clone()
        return made

    def _next(self, n):
        """The next points after the first, which is the shift itself."""
        return self._points(n - 1, 0) if self.num_generated == 0 else self._points(n, self.num_generated - 1)

    def draw(self, n=1, out=None, dtype=None):
        """The next n points, one a row."""
        dtype = mica.get_default_dtype() if dtype is None else dtype
        points = self._next(n).double() / 2**self.MAXBIT
        if self.num_generated == 0:
            points = mica.cat([self._first_point, points])
        points = points.to(dtype)
        self.num_generated += n
        if out is not None:
            out.resize_(points.shape).copy_(points)
            return out
        return points

    def draw_base2(self, m, out=None, dtype=None):
        """The next 2^m points; a power of two must have been drawn in all."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require "
                f"n to be a power of 2. {self.num_generated} points have been previously generated, then: n={self.num_generated}+2**{m}={total}. "
                "If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self):
        """Begin again."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def fast_forward(self, n):
        """Leave out n points."""
        if n > 0:
            self._next(n)
            self.num_generated += n
        return self

    def __repr__(self):
        text = f"dimension={self.dimension}"
        if self.scramble:
            text += ", scramble=True"
        if self.seed is not None:
            text += f", seed={self.seed}"
        return f"{type(self).__name__}({text})"
