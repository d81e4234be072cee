"""Fits the tables of wide_tables.h and prints that header.

    python fit_tables.py > wide_tables.h        (needs mpmath and numpy with a 128-bit longdouble; a minute)

A point of a table is chosen, among a million neighbours, where the tabled function comes so close to a number of the
table's format that its rounding does not show.
"""

import numpy
from minimax import fit, round_to, scalar, show, wrapped
from mpmath import mp, mpf

CANDIDATES = numpy.arange(-(2**19), 2**19)


def quad(x):
    high = numpy.longdouble(float(x))
    return (
        high
        + numpy.longdouble(float(x - mpf(float(x))))
        + numpy.longdouble(float(x - mpf(float(x)) - mpf(float(x - mpf(float(x))))))
    )


def row(ctype, name, values):
    print(f"  alignas(64) static constexpr {ctype} {name}[16] = {{")
    print(wrapped(ctype, values, "      ") + "};")


def sine_row(values):
    """The sine of 0 is -0, which leaves the sign of a zero that is added as it is."""
    print("  alignas(64) static constexpr double kSine[16] = {\n      -0.0,")
    print(wrapped("double", values[1:], "      ") + "};")


def exact_point(ctype, f, first, second, centre, grid=None):
    """A number near centre whose f is nearly a number of ctype, or a multiple of grid; first and second are f' and f''."""
    # Away from simple fractions, around which the values of f are spread too evenly.
    centre = round_to(ctype, centre * (1 - mp.sqrt(2) / 9000))
    spacing = mpf(2) ** (mp.floor(mp.log(centre, 2)) - (52 if ctype == "double" else 23))
    if ctype == "float":
        points = [centre + k * spacing for k in range(-3000, 3001)]
        return min(points, key=lambda c: abs(f(c) - round_to(ctype, f(c))) / f(c))
    value = f(centre)
    unit = quad(grid if grid else mpf(2) ** (mp.floor(mp.log(abs(value), 2)) - 52))
    # Where f is nearly flat the candidates lie further apart, so that f passes several numbers.
    spacing *= max(1, mp.ceil(mpf(float(unit)) * 4 / (len(CANDIDATES) * spacing * abs(first(centre)))))
    delta = CANDIDATES.astype(numpy.longdouble) * quad(spacing)
    values = quad(value) + delta * (quad(first(centre)) + delta * quad(second(centre) / 2))
    distance = numpy.abs(values / unit - numpy.rint(values / unit))
    best = int(CANDIDATES[int(numpy.argmin(distance))])
    return centre + best * spacing


def exponentials():
    print("// exp(n ln(2) + j ln(2) / 16 + r) = 2^n (p + p (e + r + r^2 P(r))), p = kPower[j], e = kPowerError[j].")
    print("struct ExpTable {")
    ln2 = mp.log(2)
    powers = [mpf(2) ** (mpf(j) / 16) for j in range(16)]
    row("double", "kPower", [round_to("double", p) for p in powers])
    row("double", "kPowerError", [(p - round_to("double", p)) / p for p in powers])
    scalar("double", "kLn2Hi", round_to("double", ln2))
    scalar("double", "kLn2Lo", ln2 - round_to("double", ln2))
    bound = ln2 / 32 * mpf("1.001")
    show("double", "kExp", *fit("double", lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2, -bound, bound, 5))
    print("};\n")


def logarithms():
    print(
        "// log(m) = kLog[j] + log(1 + f), f = m * kInverse[j] - 1, m in [3/4, 3/2), j = 16 kIndexScale m rounded, modulo 16;"
    )
    print("// log(1 + f) = f + f^2 (-1/2 + f P(f)). kLog holds multiples of 2^-16 or 2^-42.")
    print("template <class T>\nstruct LogTable;\n")
    # The columns beside 1 begin where the result reaches 1/32, and there their remainders are less than 1/32: else the
    # rounding of the remainder would show.
    chosen = {14: mpf("1.137"), 15: mpf("1.0639")}
    for ctype, bits, count in (("float", 16, 4), ("double", 42, 8)):
        print(f"template <>\nstruct LogTable<{ctype}> {{")
        scale = round_to(ctype, mpf("0.99951"))
        inverse, logs, low, high = [mpf(1)] * 16, [mpf(0)] * 16, mpf(0), mpf(0)
        for k in range(12, 25):
            begin = max(mpf("0.75"), (k - mpf("0.5")) / 16 / scale)
            end = min(mpf("1.5"), (k + mpf("0.5")) / 16 / scale)
            if k != 16:
                c = point_of_log(ctype, chosen.get(k, 2 / (begin + end)), mpf(2) ** -bits)
                inverse[k % 16], logs[k % 16] = c, mp.nint(-mp.log(c) * 2**bits) / 2**bits
                assert abs(logs[k % 16] + mp.log(c)) < mpf(2) ** (-31 if ctype == "float" else -60), k
            low, high = min(low, begin * inverse[k % 16] - 1), max(high, end * inverse[k % 16] - 1)
        scalar(ctype, "kIndexScale", scale)
        row(ctype, "kInverse", inverse)
        row(ctype, "kLog", logs)
        show(
            ctype,
            "kPolynomial",
            *fit(
                ctype,
                lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
                lambda f: f**3 / mp.log1p(f),
                low,
                high,
                count,
            ),
        )
        print("};\n")


def point_of_log(ctype, centre, grid):
    if ctype == "double":
        return exact_point(ctype, lambda c: -mp.log(c), lambda c: -1 / c, lambda c: 1 / c**2, centre, grid)
    # Above 1 towards what keeps the remainder small where the result is smallest.
    first, last = (centre * mpf(f) for f in (("0.9935", "1") if centre > 1 else ("0.9985", "1.006")))
    first, last = (numpy.float32(float(c)).view(numpy.uint32) for c in (first, last))
    points = numpy.arange(first, last, dtype=numpy.uint32).view(numpy.float32)
    logs = numpy.log(points.astype(numpy.longdouble)) / quad(grid)
    return mpf(float(points[int(numpy.argmin(numpy.abs(logs - numpy.rint(logs))))]))


def steps(angle):
    """Three parts of the angle: n times the first is exact beside x, n times the second is exact for n below 2^22."""
    first = round_to("double", angle)
    unit = mpf(2) ** (mp.floor(mp.log(angle, 2)) - 82)
    second = mp.nint((angle - first) / unit) * unit
    third = round_to("double", angle - first - second)
    scalar("double", "kSteps", round_to("double", 1 / angle))
    for name, value in (("kStepHi", first), ("kStepMid", second), ("kStepLo", third)):
        scalar("double", name, value)


def circulars():
    print("// sin(x), cos(x) with x = n pi / 8 + r: sin(r) = r + r^3 S(r^2), cos(r) = 1 + r^2 C(r^2). kMinusSineLo")
    print(
        "// is what the sine lacks, negated. The first sine is -0, which leaves the sign of a zero that is added as it is."
    )
    print("struct TurnTable {")
    steps(mp.pi / 8)
    sines = [mp.sin(j * mp.pi / 8) if j % 8 else mpf(0) for j in range(16)]
    sine_row([round_to("double", s) for s in sines])
    row("double", "kMinusSine", [-round_to("double", s) for s in sines])
    row("double", "kMinusSineLo", [round_to("double", s) - s for s in sines])
    cosines = [sines[(j + 4) % 16] for j in range(16)]
    row("double", "kCosine", [round_to("double", s) for s in cosines])
    row("double", "kMinusCosineLo", [round_to("double", s) - s for s in cosines])
    end = (mp.pi / 16 * mpf("1.001")) ** 2
    show(
        "double",
        "kSin",
        *fit(
            "double",
            lambda u: (mp.sin(mp.sqrt(u)) - mp.sqrt(u)) / mp.sqrt(u) ** 3,
            lambda u: mp.sqrt(u) ** 3 / mp.sin(mp.sqrt(u)),
            0,
            end,
            4,
        ),
    )
    show("double", "kCos", *fit("double", lambda u: (mp.cos(mp.sqrt(u)) - 1) / u, lambda u: u, 0, end, 5))
    print("};\n")
    print(
        "// tan(x) = (s + c t) / (c - s t) with x = n pi / 16 + r, t = tan(r) = r + r^3 P(r^2), s / c = tan(n pi / 16)."
    )
    print("struct TanTable {")
    steps(mp.pi / 16)
    rows = [[mpf(0)] * 16, [mpf(0)] * 16]
    for j in range(16):
        s, c = (mpf(1 if abs(v) > mpf("0.5") else 0) for v in (mp.sin(j * mp.pi / 16), mp.cos(j * mp.pi / 16)))
        if j % 8:
            s, c = mp.sin(j * mp.pi / 16), mp.cos(j * mp.pi / 16)
        if j % 4 == 0:
            s, c = mp.sign(mp.nint(4 * s)), mp.sign(mp.nint(4 * c))
        else:
            # Both scaled alike until they are nearly numbers.
            delta = 1 + CANDIDATES.astype(numpy.longdouble) * numpy.longdouble(2) ** -50
            worst = 0
            for v in (s, c):
                unit = quad(mpf(2) ** (mp.floor(mp.log(abs(v), 2)) - 52))
                scaled = quad(v) * delta / unit
                worst = numpy.maximum(worst, numpy.abs(scaled - numpy.rint(scaled)))
            scale = 1 + int(CANDIDATES[int(numpy.argmin(worst))]) * mpf(2) ** -50
            s, c = round_to("double", s * scale), round_to("double", c * scale)
            assert abs(s / c / mp.tan(j * mp.pi / 16) - 1) < mpf(2) ** -61, j
        rows[0][j], rows[1][j] = s, c
    sine_row(rows[0])
    row("double", "kCosine", rows[1])
    end = (mp.pi / 32 * mpf("1.001")) ** 2
    show(
        "double",
        "kTan",
        *fit(
            "double",
            lambda u: (mp.tan(mp.sqrt(u)) - mp.sqrt(u)) / mp.sqrt(u) ** 3,
            lambda u: mp.sqrt(u) ** 3 / mp.tan(mp.sqrt(u)),
            0,
            end,
            5,
        ),
    )
    print("};\n")


def arctangents():
    print(
        "// atan(t) = kAngle[j] + atan(q) with q = (t - c) / (1 + c t), c = kTangent[j], atan(q) = q + q^3 P(q^2). A column"
    )
    print(
        "// per half of a binade, from 3/32 (which stands for all below) to 16 (for all above); j is what is left of the"
    )
    print("// exponent and the first bit of the mantissa, modulo 16.")
    print("template <class T>\nstruct AtanTable;\n")
    for ctype, count in (("float", 3), ("double", 6)):
        print(f"template <>\nstruct AtanTable<{ctype}> {{")
        tangents, angles, largest = [mpf(0)] * 16, [mpf(0)] * 16, mpf(1) / 8
        for piece in range(1, 16):
            begin, end = (
                mpf(2) ** (-4 + (k + 1) // 2) * (1 if (k + 1) % 2 == 0 else mpf("1.5")) for k in (piece, piece + 1)
            )
            if piece == 15:
                centre, far = mpf(40), lambda c: 1 / c
            else:
                low, high = mp.atan(begin), mp.atan(end)
                centre, far = mp.tan((low + high) / 2), lambda c, end=end: (end - c) / (1 + end * c)
            c = exact_point(ctype, mp.atan, lambda c: 1 / (1 + c * c), lambda c: -2 * c / (1 + c * c) ** 2, centre)
            angle = round_to(ctype, mp.atan(c))
            assert abs(angle / mp.atan(c) - 1) < mpf(2) ** (-34 if ctype == "float" else -62), piece
            j = (7 + piece) % 16
            tangents[j], angles[j] = c, angle
            largest = max(largest, far(c), (c - begin) / (1 + begin * c))
        row(ctype, "kTangent", tangents)
        row(ctype, "kAngle", angles)
        show(
            ctype,
            "kAtan",
            *fit(
                ctype,
                lambda u: (mp.atan(mp.sqrt(u)) - mp.sqrt(u)) / mp.sqrt(u) ** 3,
                lambda u: mp.sqrt(u) ** 3 / mp.atan(mp.sqrt(u)),
                0,
                largest**2,
                count,
            ),
        )
        print("};\n")


def error_function():
    print("// erf(t) = v + r P(r) with r = t - c, for t up to kEnd; j = t (kScale - kBend t) rounded down. Rows: c, v,")
    print("// then the coefficients, lowest power first. Column 0 is for erf(r) = r + r P(r).")
    print("struct ErfTable {")
    scale, bend, top, count = round_to("double", mpf("4.497")), round_to("double", mpf("0.3037")), mpf("5.93"), 11
    # Column 1 begins where the result reaches 1/4: below, the roundings of P would show.
    assert top * (scale - top * bend) < mpf("15.999") and mp.erfc(top) < mpf(2) ** -54
    ends = [(scale - mp.sqrt(scale**2 - 4 * bend * (k + 1))) / (2 * bend) for k in range(15)] + [top]
    columns, worst = [], mpf(0)
    slope = lambda t: 2 / mp.sqrt(mp.pi) * mp.exp(-t * t)  # noqa: E731
    for k in range(16):
        begin, end = (ends[k - 1] if k else mpf(0)), ends[k]
        if k == 0:
            c, v = mpf(0), mpf(0)
            p, error = fit("double", lambda r: mp.erf(r) / r - 1, lambda r: r / mp.erf(r), mpf("1e-12"), end, count)
        else:
            c = exact_point("double", mp.erf, slope, lambda t: -2 * t * slope(t), (begin + end) / 2)
            v = round_to("double", mp.erf(c))
            assert abs(v / mp.erf(c) - 1) < mpf(2) ** -62, k
            p, error = fit(
                "double",
                lambda r, c=c: (mp.erf(c + r) - mp.erf(c)) / r if abs(r) > mpf(10) ** -25 else slope(c),
                lambda r, c=c: r / mp.erf(c + r),
                begin - c,
                end - c,
                count,
            )
        worst = max(worst, error)
        columns.append([c, v, *p])
    scalar("double", "kEnd", top)
    scalar("double", "kScale", scale)
    scalar("double", "kBend", bend)
    print(f"  static constexpr int kRows = {count + 2};")
    print(f"  alignas(64) static constexpr double kTable[kRows][16] = {{  // 2^{float(mp.log(worst, 2)):.1f}")
    for values in zip(*columns, strict=True):
        print("      {\n" + wrapped("double", values, "          ") + "},")
    print("  };\n};\n")


def hyperbolic_tangent():
    print(
        "// tanh(t) = v + r P(r) with r = t - c, for t up to kEnd: a column per quarter of a binade of t + 5/4, from 5/4 to 20"
    )
    print("// (the last reaches to kEnd). Rows: c, v, then the coefficients, lowest power first. The first is for")
    print(
        "// tanh(r) = r + r P(r). A column's number is what is left of the exponent and two bits of mantissa, modulo 16."
    )
    print("struct TanhTable {")
    top, count, columns, worst = mpf("19.0625"), 14, [None] * 16, mpf(0)
    assert mp.tanh(top) > 1 - mpf(2) ** -54
    slope = lambda t: 1 / mp.cosh(t) ** 2  # noqa: E731
    for k in range(16):
        begin, end = (mpf(2) ** ((j + 1) // 4) * (1 + mpf((j + 1) % 4) / 4) - mpf("1.25") for j in (k, k + 1))
        if k == 15:
            end = top
        if k == 0:
            c, v = mpf(0), mpf(0)
            p, error = fit("double", lambda r: mp.tanh(r) / r - 1, lambda r: r / mp.tanh(r), mpf("1e-12"), end, count)
        else:
            c = exact_point("double", mp.tanh, slope, lambda t: -2 * mp.tanh(t) * slope(t), (begin + end) / 2)
            v = round_to("double", mp.tanh(c))
            assert abs(v / mp.tanh(c) - 1) < mpf(2) ** -60, k
            p, error = fit(
                "double",
                lambda r, c=c: (mp.tanh(c + r) - mp.tanh(c)) / r if abs(r) > mpf(10) ** -25 else slope(c),
                lambda r, c=c: r / mp.tanh(c + r),
                begin - c,
                end - c,
                count,
            )
        worst = max(worst, error)
        columns[(k + 13) % 16] = [c, v, *p]
    scalar("double", "kEnd", top)
    print(f"  static constexpr int kRows = {count + 2};")
    print(f"  alignas(64) static constexpr double kTable[kRows][16] = {{  // 2^{float(mp.log(worst, 2)):.1f}")
    for values in zip(*columns, strict=True):
        print("      {\n" + wrapped("double", values, "          ") + "},")
    print("  };\n};\n")


if __name__ == "__main__":
    print(
        "// Written by fit_tables.py: sixteen points of a function, which AVX-512 looks up in two registers, and the short"
    )
    print("// polynomials between them. Beside a polynomial stands the largest relative error that it brings.")
    print("// clang-format off\n#pragma once\n\nnamespace mica::cpu {\n")
    for family in (exponentials, logarithms, circulars, arctangents, error_function, hyperbolic_tangent):
        family()
    print("}  // namespace mica::cpu")
