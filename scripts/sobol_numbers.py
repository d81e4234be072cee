#!/usr/bin/env python3
"""Writes python/mica/sobol_numbers.bin, the direction numbers of Joe and Kuo, from the table that SciPy brings.

usage: sobol_numbers.py FILE

There is a record for each primitive polynomial of degree 1 to 18, in ascending order; the first dimension needs none. A record of a
polynomial of degree n has n - 1 bits, its coefficients between the first and the last, which are one; then, for j from 2 to n, j - 1 bits
of the jth initial number without its last, which is one. Bits follow each other, the highest of a byte first.
"""

import sys
from pathlib import Path

import numpy
import scipy.stats


def main(file):
    table = numpy.load(Path(scipy.stats.__file__).parent / "_sobol_direction_numbers.npz")
    bits = []
    for polynomial, initial in zip(table["poly"][1:].tolist(), table["vinit"][1:].tolist(), strict=True):
        degree = polynomial.bit_length() - 1
        bits.append(format((polynomial >> 1) - (1 << (degree - 1)), f"0{degree - 1}b") if degree > 1 else "")
        bits += [format(initial[j] >> 1, f"0{j}b") for j in range(1, degree)]
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    Path(file).write_bytes(int(text, 2).to_bytes(len(text) // 8, "big"))


if __name__ == "__main__":
    main(*sys.argv[1:])
