"""Fits the minimax polynomials of polynomials.h and prints that header.

    python fit_polynomials.py > polynomials.h        (needs mpmath and numpy; half a minute)
    python fit_polynomials.py gaussian_tail.h > gaussian_tail.h

Each polynomial is fitted (minimax.py) against a weight that turns its error into the relative error of the finished
function.
"""

import sys

from minimax import fit, parts, round_to, scalar, show, wrapped
from mpmath import mp, mpf


def erfcx(t):
    return mp.exp(t * t) * mp.erfc(t)


def odd_tail(f):
    """(f(x) - x) / x^3 as a function of u = x^2, and the weight of its error in f(x)."""
    return (lambda u: (f(mp.sqrt(u)) - mp.sqrt(u)) / mp.sqrt(u) ** 3, lambda u: mp.sqrt(u) ** 3 / f(mp.sqrt(u)))


def exponentials(ctype, short):
    ln2 = mp.log(2)
    bound = ln2 / 2 * mpf("1.0001")
    scalar(ctype, "kLog2E", round_to(ctype, 1 / ln2))
    parts(ctype, "kLn2", ln2, 2, 15 if short else 41)
    print("  // exp(r) = 1 + r + r^2 P(r);  expm1(r) = r + r^2 / 2 + r^3 P(r);  exp2(r) = 1 + r P(r)")
    show(
        ctype,
        "kExp",
        *fit(ctype, lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2 / mp.exp(r), -bound, bound, 5 if short else 10),
    )
    show(
        ctype,
        "kExpm1",
        *fit(
            ctype,
            lambda r: (mp.expm1(r) - r - r**2 / 2) / r**3,
            lambda r: r**3 / mp.expm1(r),
            -bound,
            bound,
            5 if short else 11,
        ),
    )
    show(
        ctype,
        "kExp2",
        *fit(
            ctype,
            lambda r: mp.expm1(r * ln2) / r,
            lambda r: r / mpf(2) ** r,
            mpf("-0.5001"),
            mpf("0.5001"),
            6 if short else 12,
        ),
    )


def logarithms(ctype, short):
    parts(ctype, "kLog2EPair", 1 / mp.log(2), 2)
    parts(ctype, "kLog10EPair", 1 / mp.log(10), 2)
    parts(ctype, "kLog10Of2", mp.log10(2), 2, 15 if short else 41)
    print("  // log(1 + f) = f - f^2 / 2 + f^3 P(f) on [-1/4, 1/2]")
    show(
        ctype,
        "kLog",
        *fit(
            ctype,
            lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
            lambda f: f**3 / mp.log1p(f),
            mpf("-0.25"),
            mpf("0.5"),
            9 if short else 22,
        ),
    )

    if not short:
        print("  // log(m) = 2 s + (2/3) s^3 + s^5 P(s^2) with s = (m - 1) / (m + 1)")
        parts(ctype, "kTwoThirds", mpf(2) / 3, 2)
        show(
            ctype,
            "kLogOddTail",
            *fit(
                ctype,
                lambda u: 2 * (mp.atanh(mp.sqrt(u)) - mp.sqrt(u) - mp.sqrt(u) ** 3 / 3) / mp.sqrt(u) ** 5,
                lambda u: mp.sqrt(u) ** 5 / (2 * mp.atanh(mp.sqrt(u))),
                0,
                mpf("0.0401"),
                10,
            ),
        )


def hyperbolics(ctype, short):
    print("  // sinh(x) = x + x^3 P(x^2) up to 1")
    show(ctype, "kSinh", *fit(ctype, *odd_tail(mp.sinh), 0, 1, 4 if short else 8))


def circulars(ctype, short):
    scalar(ctype, "kTwoOverPi", round_to(ctype, 2 / mp.pi))
    parts(ctype, "kPi", mp.pi, 2)
    parts(ctype, "kHalfPi", mp.pi / 2, 3)
    parts(ctype, "kQuarterPi", mp.pi / 4, 2)
    if short:
        print("  // pi / 2 in parts; small multiples of the first two are exact")
        parts(ctype, "kQuarterTurn", mp.pi / 2, 3, 23, 12)
    quarter = (mp.pi / 4 * mpf("1.0001")) ** 2
    print(
        "  // with u = x^2: sin(x) = x + x^3 P(u), cos(x) = 1 - u / 2 + u^2 P(u), tan(x) = x + x^3 P(u), up to pi / 4;"
    )
    print("  // asin(x) = x + x^3 P(u) up to 1;  atan(x) = x + x^3 P(u) up to tan(pi / 8)")
    show(ctype, "kSin", *fit(ctype, *odd_tail(mp.sin), 0, quarter, 3 if short else 6))
    show(
        ctype,
        "kCos",
        *fit(
            ctype,
            lambda u: (mp.cos(mp.sqrt(u)) - 1 + u / 2) / u**2,
            lambda u: u**2 / mp.cos(mp.sqrt(u)),
            0,
            quarter,
            3 if short else 6,
        ),
    )
    if not short:
        show(ctype, "kTan", *fit(ctype, *odd_tail(mp.tan), 0, quarter, 14))
    show(ctype, "kAsin", *fit(ctype, *odd_tail(mp.asin), 0, mpf("0.25"), 5 if short else 12))
    show(ctype, "kAtan", *fit(ctype, *odd_tail(mp.atan), 0, (mp.sqrt(2) - 1) ** 2, 5 if short else 11))


def gaussians(ctype, short):
    pole = mpf(3 if short else 4)
    end = mpf("10.2") if short else mpf("27.5")

    def scaled(z):
        t = pole * (1 + z) / (1 - z)
        return erfcx(t) * (t + pole)

    print("  // erf(x) = x + x P(x^2) up to 1;  exp(t^2) erfc(t) = P((t - pole) / (t + pole)) / (t + pole)")
    scalar(ctype, "kErfcxPole", pole)
    show(
        ctype,
        "kErf",
        *fit(
            ctype,
            lambda u: mp.erf(mp.sqrt(u)) / mp.sqrt(u) - 1,
            lambda u: mp.sqrt(u) / mp.erf(mp.sqrt(u)),
            0,
            1,
            7 if short else 15,
        ),
    )
    print("  // the Gaussian's integral from 0 to t is t P(t^2), t up to 1")
    show(
        ctype,
        "kGaussian",
        *fit(
            ctype,
            lambda u: mp.erf(mp.sqrt(u / 2)) / mp.sqrt(u) / 2,
            lambda u: mp.sqrt(u) / mp.erfc(mp.sqrt(u / 2)) * 2,
            0,
            1,
            6 if short else 13,
        ),
    )
    if short:
        coefficients, error = fit(
            ctype,
            lambda t: mp.log(mp.erfc(t / mp.sqrt(2)) / 2, 2) + t * t / mp.log(2) / 2,
            lambda t: mp.log(2),
            0,
            5,
            12,
        )
        print(
            "  // the Gaussian's upper tail from t on is 2^(-1 + t (c + t (E(t^2) + t O(t^2))) - t^2 log2(e) / 2), t up to 5:"
            f" 2^{float(mp.log(error, 2)):.1f}"
        )
        scalar(ctype, "kHalfLog2E", round_to(ctype, 1 / mp.log(2) / 2))
        scalar(ctype, "kLogTailSlope", coefficients[1])
        for name, first in (("kLogTailEven", 2), ("kLogTailOdd", 3)):
            print(f"  static constexpr {ctype} {name}[] = {{")
            print(wrapped(ctype, coefficients[first::2], "      ") + "};")
    if short:
        ln2 = mp.log(2)
        print("  // log2(erfc(1 + u)) = P(u), u up to 3;  exp2(r) = 1 + r P(r) with the digits that erf needs of erfc")
        show(
            ctype,
            "kLogErfc",
            *fit(
                ctype,
                lambda u: mp.log(mp.erfc(1 + u), 2),
                lambda u: mp.erfc(1 + u) * ln2 / mp.erf(1 + u),
                0,
                3,
                8,
            ),
        )
        show(
            ctype,
            "kExp2OfTail",
            *fit(
                ctype,
                lambda r: mp.expm1(r * ln2) / r,
                lambda r: r / mpf(2) ** r * mp.erfc(1),
                mpf("-0.5001"),
                mpf("0.5001"),
                5,
            ),
        )
    show(
        ctype,
        "kErfcx",
        *fit(ctype, scaled, lambda z: 1 / scaled(z), -1, (end - pole) / (end + pole), 10 if short else 26),
    )


def floats_through_doubles():
    """Double arithmetic, but only as many terms as a float result needs."""
    ln2 = mp.log(2)
    half_turn = (mp.pi / 2 * mpf("1.0001")) ** 2
    quarter = (mp.pi / 4 * mpf("1.0001")) ** 2
    print("  // sin(x) = x P(x^2) up to pi / 2;  tan(x) = x P(x^2) up to pi / 4")
    show(
        "double",
        "kSin",
        *fit(
            "double",
            lambda u: mp.sin(mp.sqrt(u)) / mp.sqrt(u),
            lambda u: mp.sqrt(u) / mp.sin(mp.sqrt(u)),
            0,
            half_turn,
            5,
        ),
    )
    show(
        "double",
        "kTan",
        *fit(
            "double",
            lambda u: mp.tan(mp.sqrt(u)) / mp.sqrt(u),
            lambda u: mp.sqrt(u) / mp.tan(mp.sqrt(u)),
            0,
            quarter,
            8,
        ),
    )
    print("  // log2(1 + f) = f P(f) on [-1/4, 1/2];  exp2(r) = P(r)")
    show(
        "double",
        "kLog2",
        *fit("double", lambda f: mp.log1p(f) / f / ln2, lambda f: ln2 * f / mp.log1p(f), mpf("-0.25"), mpf("0.5"), 15),
    )
    show(
        "double",
        "kExp2",
        *fit("double", lambda r: mpf(2) ** r, lambda r: mpf(2) ** -r, mpf("-0.5001"), mpf("0.5001"), 8),
    )


def exact_centre(f, low, high):
    """A float in the middle of [low, high] at which f comes close to a float."""
    candidates = [round_to("float", (low + high) / 2 + (high - low) * k / 10000) for k in range(-1000, 1001)]
    return min(candidates, key=lambda c: abs(f(c) - round_to("float", f(c))) / f(c))


def tanh_pieces():
    """tanh(centre + r) = value + r P(r) on quarters of binades from 2^-4 to 10; below 2^-4, tanh(r) = r + r P(r)."""
    pieces = [
        [mpf(0), mpf(0)]
        + fit("float", lambda r: mp.tanh(r) / r - 1, lambda r: r / mp.tanh(r), mpf("1e-9"), mpf(1) / 16, 5)[0]
    ]
    for binade in range(-4, 4):
        for quarter in range(4 if binade < 3 else 1):
            low, high = (mpf(2) ** binade * (1 + mpf(quarter + k) / 4) for k in (0, 1))
            c = exact_centre(mp.tanh, low, high)
            v = round_to("float", mp.tanh(c))
            coefficients, error = fit(
                "float", lambda r: (mp.tanh(c + r) - mp.tanh(c)) / r, lambda r: r / mp.tanh(c + r), low - c, high - c, 5
            )
            assert error < mpf(2) ** -26, (binade, quarter, mp.log(error, 2))
            pieces.append([c, v] + coefficients)
    pieces += [pieces[-1]] * (32 - len(pieces))
    print("  static constexpr int kCount = 7;")
    print("  alignas(64) static constexpr float kTable[kCount][32] = {")
    for row in zip(*pieces, strict=False):
        print("      {\n" + wrapped("float", row, "          ") + "},")
    print("  };")


def gaussian_tail_pieces():
    """erfc((centre + r) / sqrt(2)) / 2 = P(r) around multiples of a step from 0 to 5."""
    step = round_to("float", mpf("0.16"))
    pieces = []

    def tail(t):
        return mp.erfc(t / mp.sqrt(2)) / 2

    for n in range(32):
        c = n * step
        low = -step / 2 if n else mpf(0)
        coefficients, error = fit("float", lambda r: tail(c + r), lambda r: 1 / tail(c + r), low, step / 2, 6)
        assert error < mpf(2) ** (-24 if c < 3 else -22), (n, mp.log(error, 2))
        pieces.append(coefficients)
    scalar("float", "kStep", step)
    print("  static constexpr int kCount = 6;")
    print("  alignas(64) static constexpr float kTable[kCount][32] = {")
    for row in zip(*pieces, strict=True):
        print("      {\n" + wrapped("float", row, "          ") + "},")
    print("  };")


if __name__ == "__main__" and sys.argv[1:] == ["gaussian_tail.h"]:
    print("// Written by fit_polynomials.py gaussian_tail.h: the upper tail of the Gaussian, piece by piece.")
    print("// clang-format off\n#pragma once\n\nnamespace mica::cpu {\n")
    print("// Rows: the coefficients of P, lowest power first; column n is for the piece around n steps.")
    print("struct GaussianTailPieces {")
    gaussian_tail_pieces()
    print("};\n\n}  // namespace mica::cpu")
elif __name__ == "__main__":
    print(
        "// Written by fit_polynomials.py: minimax polynomials, lowest power first, and constants split into parts whose"
    )
    print(
        "// sum is exact. Beside a polynomial stands the largest relative error that it alone brings to its function."
    )
    print("// clang-format off\n#pragma once\n\nnamespace mica::cpu {\n\ntemplate <class T>\nstruct Polynomials;")
    for ctype in ("float", "double"):
        print(f"\ntemplate <>\nstruct Polynomials<{ctype}> {{")
        for family in (exponentials, logarithms, hyperbolics, circulars, gaussians):
            family(ctype, ctype == "float")
        print("};")
    print("\n// Evaluated in double for a float result.\nstruct PolynomialsThroughDouble {")
    floats_through_doubles()
    print(
        "};\n\n// Rows: centre, value, then the coefficients of P, lowest power first; a column per piece.\nstruct TanhPieces {"
    )
    tanh_pieces()
    print("};\n\n}  // namespace mica::cpu")
