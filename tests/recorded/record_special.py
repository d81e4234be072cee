"""Records special functions with 40 digits' arithmetic (mpmath) as special.json: python tests/recorded/record_special.py"""

import json
from pathlib import Path

import mpmath as mp

mp.mp.dps = 40
LINE = (-30.0, -7.25, -2.5, -1.0, -0.3, -1e-4, 1e-8, 0.1, 0.5, 1.0, 1.75, 3.2, 5.0, 8.5, 14.0, 33.0, 120.0, 700.0)
POSITIVE = tuple(x for x in LINE if x > 0)
DEGREES = (0, 1, 2, 3, 5, 8, 13, 20)
INSIDE = (-0.99, -0.5, 0.0, 0.3, 0.75, 1.5)


def recurrence(first, step):
    """p(0) = 1, p(1) = first(x), p(k + 1) = step(k, x, p(k), p(k - 1)): sums of exact terms where series cancel."""

    def polynomial(n, x):
        before, here = mp.mpf(1), first(x)
        for k in range(1, n):
            before, here = here, step(k, x, here, before)
        return here if n else mp.mpf(1)

    return polynomial


def chebyshev(first):
    return recurrence(first, lambda k, x, here, before: 2 * x * here - before)


FIRST, SECOND = chebyshev(lambda x: x), chebyshev(lambda x: 2 * x)
THIRD, FOURTH = chebyshev(lambda x: 2 * x - 1), chebyshev(lambda x: 2 * x + 1)
HERMITE = recurrence(lambda x: 2 * x, lambda k, x, here, before: 2 * x * here - 2 * k * before)
HERMITE_E = recurrence(lambda x: x, lambda k, x, here, before: x * here - k * before)
LAGUERRE = recurrence(lambda x: 1 - x, lambda k, x, here, before: ((2 * k + 1 - x) * here - k * before) / (k + 1))
LEGENDRE = recurrence(lambda x: x, lambda k, x, here, before: ((2 * k + 1) * x * here - k * before) / (k + 1))


def shifted(kind):
    return lambda n, x: kind(n, 2 * x - 1)


ONE = {
    "bessel_j0": (lambda x: mp.besselj(0, x), LINE),
    "bessel_j1": (lambda x: mp.besselj(1, x), LINE),
    "bessel_y0": (lambda x: mp.bessely(0, x), POSITIVE),
    "bessel_y1": (lambda x: mp.bessely(1, x), POSITIVE),
    "modified_bessel_i0": (lambda x: mp.besseli(0, x), LINE[:-1]),
    "modified_bessel_i1": (lambda x: mp.besseli(1, x), LINE[:-1]),
    "modified_bessel_k0": (lambda x: mp.besselk(0, x), POSITIVE[:-1]),
    "modified_bessel_k1": (lambda x: mp.besselk(1, x), POSITIVE[:-1]),
    "scaled_modified_bessel_k0": (lambda x: mp.besselk(0, x) * mp.exp(x), POSITIVE),
    "scaled_modified_bessel_k1": (lambda x: mp.besselk(1, x) * mp.exp(x), POSITIVE),
    "spherical_bessel_j0": (lambda x: mp.sin(x) / x, LINE),
    "airy_ai": (mp.airyai, (-30.0, -7.25, -2.5, -1.0, -0.3, 1e-8, 0.5, 1.0, 3.2, 8.5, 14.0)),
    "erfcx": (lambda x: mp.exp(mp.mpf(x) ** 2) * mp.erfc(x), LINE[2:]),
    "digamma": (mp.digamma, tuple(x for x in LINE if x > 0 or x != int(x))),
    "gammaln": (lambda x: mp.log(abs(mp.gamma(x))), tuple(x for x in LINE if x > 0 or x != int(x))),
    "ndtri": (lambda p: mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1), (1e-12, 1e-4, 0.02, 0.31, 0.5, 0.77, 0.999)),
}
# Degree or order first in mpmath, second in torch.
TWO = {
    "chebyshev_polynomial_t": (FIRST, INSIDE, DEGREES),
    "chebyshev_polynomial_u": (SECOND, INSIDE, DEGREES),
    "chebyshev_polynomial_v": (THIRD, INSIDE, DEGREES),
    "chebyshev_polynomial_w": (FOURTH, INSIDE, DEGREES),
    "shifted_chebyshev_polynomial_t": (shifted(FIRST), INSIDE[2:], DEGREES),
    "shifted_chebyshev_polynomial_u": (shifted(SECOND), INSIDE[2:], DEGREES),
    "shifted_chebyshev_polynomial_v": (shifted(THIRD), INSIDE[2:], DEGREES),
    "shifted_chebyshev_polynomial_w": (shifted(FOURTH), INSIDE[2:], DEGREES),
    "hermite_polynomial_h": (HERMITE, INSIDE, DEGREES),
    "hermite_polynomial_he": (HERMITE_E, INSIDE, DEGREES),
    "laguerre_polynomial_l": (LAGUERRE, INSIDE, DEGREES),
    "legendre_polynomial_p": (LEGENDRE, INSIDE, DEGREES),
    "zeta": (lambda q, x: mp.zeta(x, q), (1.1, 2.0, 3.5, 9.0), (0.25, 1, 4.5, 30)),
    "gammainc": (lambda x, a: mp.gammainc(a, 0, x, regularized=True), (0.3, 1.0, 4.5, 20.0), (0.1, 1, 5, 25)),
    "gammaincc": (lambda x, a: mp.gammainc(a, x, regularized=True), (0.3, 1.0, 4.5, 20.0), (0.1, 1, 5, 25)),
}


def main():
    recorded = {"one": {}, "two": {}}
    for name, (function, points) in ONE.items():
        recorded["one"][name] = [[x, float(function(mp.mpf(x)))] for x in points]
    for name, (function, points, orders) in TWO.items():
        recorded["two"][name] = [[x, n, float(function(n if isinstance(n, int) else mp.mpf(n), mp.mpf(x)))]
                                 for x in points for n in orders]  # fmt: skip
    Path(__file__).with_name("special.json").write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
