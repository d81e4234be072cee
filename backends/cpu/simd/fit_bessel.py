"""Makes the Chebyshev series of bessel_tables.h and prints that header.

    python fit_bessel.py > bessel_tables.h        (needs mpmath; some seconds)

Each series is of the function named, in the variable that takes its range to [-1, 1]; coefficients that are below a
quarter of the last digit of the largest one are left out, for float64 and, in `..._short`, for float32.
"""

from mpmath import airyai, airybi, besseli, besselj, besselk, bessely, cos, exp, log, mp, mpf, pi, sin, sqrt

mp.dps = 40
NODES = 80


def chebyshev(function, low, high):
    """Coefficients on [low, high]; the first one is halved already."""
    low, high = mpf(low), mpf(high)
    angles = [pi * (2 * j + 1) / (2 * NODES) for j in range(NODES)]
    values = [function((high + low) / 2 + (high - low) / 2 * cos(a)) for a in angles]
    found = []
    for k in range(NODES):
        c = 2 / mpf(NODES) * sum(v * cos(k * a) for v, a in zip(values, angles, strict=True))
        found.append(c / 2 if k == 0 else c)
    return found


def kept(coefficients, bits):
    limit = max(abs(c) for c in coefficients) * mpf(2) ** (-bits)
    last = max(k for k, c in enumerate(coefficients) if abs(c) >= limit)
    return last + 1


def modulus(order, y):
    """P and Q of J = sqrt(2 / pi x) (P cos a - Q sin a), a = x - (2 order + 1) pi / 4, as functions of (8 / x)^2 = y."""
    if y == 0:
        y = mpf(10) ** -30
    x = 8 / sqrt(y)
    a = x - (2 * order + 1) * pi / 4
    scale = sqrt(pi * x / 2)
    j, n = besselj(order, x) * scale, bessely(order, x) * scale
    return j * cos(a) + n * sin(a), (n * cos(a) - j * sin(a)) * x / 8


def oscillating_airy(y):
    """U and V of Ai(-z) = (sin(a) U - cos(a) V / s) / (sqrt(pi) z^(1/4)), s = 2/3 z^(3/2), a = s + pi / 4, y = 1 / s^2."""
    s = 1 / sqrt(y)
    z = (s * 3 / 2) ** (mpf(2) / 3)
    a, scale = s + pi / 4, sqrt(pi) * z ** mpf("0.25")
    ai, bi = airyai(-z) * scale, airybi(-z) * scale
    return sin(a) * ai + cos(a) * bi, (sin(a) * bi - cos(a) * ai) * s


def decaying_airy(y):
    """F of Ai(x) = exp(-s) F / (2 sqrt(pi) x^(1/4)), s = 2/3 x^(3/2), y = 1 / s."""
    s = 1 / y
    x = (s * 3 / 2) ** (mpf(2) / 3)
    return airyai(x) * exp(s) * 2 * sqrt(pi) * x ** mpf("0.25")


TINY = mpf(10) ** -15


def k_small(order, y):
    x = sqrt(y) if y > 0 else TINY
    if order == 0:
        return besselk(0, x) + log(x / 2) * besseli(0, x)
    return (besselk(1, x) - log(x / 2) * besseli(1, x)) * x


SERIES = [
    ("J0", "J0 for x^2 in [0, 64]", lambda y: besselj(0, sqrt(y)), 0, 64),
    ("J1", "J1 / x for x^2 in [0, 64]", lambda y: besselj(1, sqrt(y)) / sqrt(y) if y else mpf("0.5"), 0, 64),
    ("Y0", "Y0 - 2/pi log(x) J0", lambda y: bessely(0, sqrt(y)) - 2 / pi * log(sqrt(y)) * besselj(0, sqrt(y)), 0, 64),
    ("Y1", "(Y1 - 2/pi (log(x) J1 - 1/x)) / x",
     lambda y: (bessely(1, sqrt(y)) - 2 / pi * (log(sqrt(y)) * besselj(1, sqrt(y)) - 1 / sqrt(y))) / sqrt(y), 0, 64),
    ("P0", "for (8/x)^2 in [0, 1]", lambda y: modulus(0, y)[0], 0, 1),
    ("Q0", "times x / 8", lambda y: modulus(0, y)[1], 0, 1),
    ("P1", "", lambda y: modulus(1, y)[0], 0, 1),
    ("Q1", "times x / 8", lambda y: modulus(1, y)[1], 0, 1),
    ("K0Small", "K0 + log(x / 2) I0 for x^2 in [0, 4]", lambda y: k_small(0, y), 0, 4),
    ("K1Small", "x (K1 - log(x / 2) I1)", lambda y: k_small(1, y), 0, 4),
    ("I0Small", "I0 for x^2 in [0, 4]", lambda y: besseli(0, sqrt(y)), 0, 4),
    ("I1Small", "I1 / x", lambda y: besseli(1, sqrt(y)) / sqrt(y), 0, 4),
    ("K0Large", "exp(x) sqrt(x) K0 for 2 / x in [0, 1]",
     lambda y: exp(2 / y) * sqrt(2 / y) * besselk(0, 2 / y), 0, 1),
    ("K1Large", "exp(x) sqrt(x) K1", lambda y: exp(2 / y) * sqrt(2 / y) * besselk(1, 2 / y), 0, 1),
    ("I0Low", "exp(-x) I0 for x in [0, 8]", lambda x: exp(-x) * besseli(0, x), 0, 8),
    ("I1Low", "exp(-x) I1 / x", lambda x: exp(-x) * besseli(1, x) / x, 0, 8),
    ("I0High", "exp(-x) sqrt(x) I0 for 8 / x in [0, 1]", lambda y: exp(-8 / y) * sqrt(8 / y) * besseli(0, 8 / y), 0, 1),
    ("I1High", "exp(-x) sqrt(x) I1", lambda y: exp(-8 / y) * sqrt(8 / y) * besseli(1, 8 / y), 0, 1),
    ("AiryMiddle", "Ai in [-4, 2]", airyai, -4, 2),
    ("AiryDecay", "F for 1 / s", decaying_airy, 0, 3 / (2 * mpf(2) ** mpf("1.5"))),
    ("AiryU", "for 1 / s^2", lambda y: oscillating_airy(y)[0], 0, (mpf(3) / 16) ** 2),
    ("AiryV", "", lambda y: oscillating_airy(y)[1], 0, (mpf(3) / 16) ** 2),
]  # fmt: skip


def main():
    print("// Made by fit_bessel.py: Chebyshev series of Bessel and Airy functions. See there for what each one is of.")
    print("#pragma once\n\nnamespace mica::cpu::bessel {\n")
    print("struct Series {\n  const double* terms;\n  int count, count_short;  // for float64 and for float32\n};\n")
    for name, comment, function, low, high in SERIES:
        found = chebyshev(function, low, high)
        count, short = kept(found, 55), kept(found, 26)
        note = f"  // {comment}" if comment else ""
        print(f"inline constexpr double k{name}Terms[] = {{{note}")
        for c in found[:count]:
            print(f"    {float(c)!r},")
        print("};")
        print(f"inline constexpr Series k{name}{{k{name}Terms, {count}, {short}}};\n")
    print("}  // namespace mica::cpu::bessel")


if __name__ == "__main__":
    main()
