"""Minimax polynomials: the Remez exchange in 60 digits, rounding of coefficients, and how they are printed as C++.

The coefficients are rounded one at a time, lowest power first, the rest refitted so that they absorb the rounding. The
printed comment is the largest relative error that the rounded polynomial alone causes, as a power of two.
"""

import struct

import numpy
from mpmath import mp, mpf

mp.dps = 60


def round_to(ctype, value):
    if ctype == "float":
        return mpf(struct.unpack("f", struct.pack("f", float(value)))[0])
    return mpf(float(value))


def chebyshev_points(lo, hi, n):
    mid, half = (lo + hi) / 2, (hi - lo) / 2
    return [mid - half * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]


class Problem:
    """Approximates f(x) by sum c_k x^k for k in range(count), minimising max |weight * error| on a grid."""

    def __init__(self, f, weight, lo, hi, count):
        self.xs = chebyshev_points(mpf(lo), mpf(hi), 24 * count + 40)
        self.fs = [f(x) for x in self.xs]
        self.ws = [abs(weight(x)) for x in self.xs]
        self.count = count

    def errors(self, coefficients):
        out = []
        for x, f, w in zip(self.xs, self.fs, self.ws, strict=False):
            p = mpf(0)
            for c in reversed(coefficients):
                p = p * x + c
            out.append((f - p) * w)
        return out

    def remez(self):
        n, points = self.count, len(self.xs)
        nodes = [round((points - 1) * mpf(i) / n) for i in range(n + 1)]
        for _ in range(20):
            a, b = mp.matrix(n + 1, n + 1), mp.matrix(n + 1, 1)
            for row, i in enumerate(nodes):
                for k in range(n):
                    a[row, k] = self.ws[i] * self.xs[i] ** k
                a[row, n] = (-1) ** row
                b[row] = self.ws[i] * self.fs[i]
            solution = mp.lu_solve(a, b)
            coefficients = [solution[k] for k in range(n)]
            errors = self.errors(coefficients)
            if max(abs(e) for e in errors) < abs(solution[n]) * mpf("1.02"):
                break
            nodes = alternating_extrema(errors)
            if len(nodes) < n + 1:
                raise ArithmeticError("the error does not alternate: too many coefficients for the precision")
            while len(nodes) > n + 1:
                nodes.pop(0 if abs(errors[nodes[0]]) < abs(errors[nodes[-1]]) else -1)
        return coefficients

    def refit(self, coefficients, first):
        """The coefficients from first on, chosen anew by least squares with the earlier ones as they are."""
        rest = [
            w * (f - sum(c * x**k for k, c in enumerate(coefficients[:first])))
            for x, f, w in zip(self.xs, self.fs, self.ws, strict=False)
        ]
        basis = [[float(w * x**k) for k in range(first, self.count)] for x, w in zip(self.xs, self.ws, strict=False)]
        # What is left after the minimax coefficients is tiny, so doubles can solve for the change to them.
        left = [
            float(r - sum(w * c * x ** (first + k) for k, c in enumerate(coefficients[first:])))
            for r, x, w in zip(rest, self.xs, self.ws, strict=False)
        ]
        change = numpy.linalg.lstsq(numpy.array(basis), numpy.array(left), rcond=None)[0]
        return coefficients[:first] + [c + mpf(float(d)) for c, d in zip(coefficients[first:], change, strict=False)]


def alternating_extrema(errors):
    out = []
    for i, e in enumerate(errors):
        if out and (errors[out[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[out[-1]]):
                out[-1] = i
        else:
            out.append(i)
    return out


def fit(ctype, f, weight, lo, hi, count):
    problem = Problem(f, weight, lo, hi, count)
    coefficients = problem.remez()
    for k in range(count):
        coefficients[k] = round_to(ctype, coefficients[k])
        if k + 1 < count:
            coefficients = problem.refit(coefficients, k + 1)
    return coefficients, max(abs(e) for e in problem.errors(coefficients))


def literal(ctype, value):
    if ctype == "float":
        digits = next(d for d in range(6, 12) if round_to("float", mpf(f"{float(value):.{d}e}")) == value)
        return f"{float(value):.{digits}e}f"
    return repr(float(value))


def wrapped(ctype, values, indent):
    lines, line = [], indent
    for value in values:
        text = literal(ctype, value) + ","
        if len(line) + len(text) >= 119:
            lines.append(line.rstrip())
            line = indent
        line += text + " "
    return "\n".join(lines + [line.rstrip(", ")])


def show(ctype, name, coefficients, error):
    print(f"  static constexpr {ctype} {name}[] = {{  // 2^{float(mp.log(error, 2)):.1f}")
    print(wrapped(ctype, coefficients, "      ") + "};")


def scalar(ctype, name, value):
    print(f"  static constexpr {ctype} {name} = {literal(ctype, value)};")


def parts(ctype, name, value, count, *bits):
    """value as an unevaluated sum of count constants; bits shorten the first ones so that small multiples are exact."""
    for i in range(count):
        if i < len(bits):
            scale = mpf(2) ** (bits[i] - 1 - int(mp.floor(mp.log(value, 2))))
            c = mp.nint(value * scale) / scale
        else:
            c = round_to(ctype, value)
        scalar(ctype, name + ("Hi", "Mid", "Lo")[i if count == 3 else 2 * i], c)
        value -= c
