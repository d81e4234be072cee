"""Bessel and Airy functions, orthogonal polynomials and others against 40 digits' arithmetic (tests/recorded/special.json)."""

import json
from pathlib import Path

import mica as torch
import pytest

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "special.json").read_text())
# The phase of Ai(-30) is 110: its last place is worth a hundred of the last places of the value.
AIRY = 128
EPSILON = torch.finfo(torch.float64).eps
# Where a function passes through zero, or its argument is reduced by multiples of pi, the error is relative to the
# function's size nearby, not to its value: this many units of the last place of the greatest recorded value below one.
OSCILLATING = {
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai", "spherical_bessel_j0", "digamma", "gammaln",
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED["one"])
def test_of_one_number(name):
    points, expected = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*RECORDED["one"][name], strict=True)
    )
    error = (getattr(torch.special, name)(points) - expected).abs()
    size = expected.abs().clamp_min(0.1) if name in OSCILLATING else expected.abs()
    bound = (AIRY if name == "airy_ai" else 64) * EPSILON * size
    assert (error <= bound).all(), (points[error > bound], error / size / EPSILON)


@pytest.mark.parametrize("name", RECORDED["two"])
def test_of_two_numbers(name):
    x, n, expected = (torch.tensor(column, dtype=torch.float64) for column in zip(*RECORDED["two"][name], strict=True))
    error = (getattr(torch.special, name)(x, n) - expected).abs()
    size = expected.abs().clamp_min(1.0) if "polynomial" in name else expected.abs()
    assert (error <= 256 * EPSILON * size).all(), (x[error > 256 * EPSILON * size], error / size / EPSILON)
