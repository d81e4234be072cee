"""Quotients and remainders of integers, which vectors compute as floating-point numbers: what Python says of them."""

import random

import mica as torch
import pytest

SIZES = {torch.int8: 8, torch.uint8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64}


def limits(dtype):
    bits = SIZES[dtype]
    return (0, (1 << bits) - 1) if dtype == torch.uint8 else (-(1 << bits - 1), (1 << bits - 1) - 1)


def wrapped(value, dtype):
    """The value in two's complement: the one quotient that does not fit is its own opposite."""
    high = limits(dtype)[1]
    value &= (1 << SIZES[dtype]) - 1
    return value - (1 << SIZES[dtype]) if value > high else value


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def pairs(dtype):
    """All pairs of bytes; for others extremes, random numbers, and dividends beside a multiple of the divisor."""
    low, high = limits(dtype)
    if SIZES[dtype] == 8:
        return [(a, b) for a in range(low, high + 1) for b in range(low, high + 1) if b]
    draw = random.Random(SIZES[dtype])
    extremes = (low, low + 1, low // 2, -3, -1, 0, 1, 2, high // 2, high - 1, high)
    found = [(a, b) for a in extremes for b in extremes]
    for _ in range(3000):
        b = draw.randint(1, draw.choice((high, 1000)))
        near = b * draw.randint(0, high // b) + draw.choice((-1, 0, 1))
        found += [(near, b), (-near, b), (near, -b), (draw.randint(low, high), draw.randint(low, high))]
    return [(a, b) for a, b in found if b and low <= a <= high]


@pytest.mark.parametrize("dtype", SIZES)
def test_quotients_and_remainders(dtype):
    cases = pairs(dtype)
    a, b = (torch.tensor(side, dtype=dtype) for side in zip(*cases, strict=True))
    for found, exact in (
        (a // b, lambda x, y: x // y),
        (torch.div(a, b, rounding_mode="trunc"), truncated),
        (a % b, lambda x, y: x % y),
        (torch.fmod(a, b), lambda x, y: x - truncated(x, y) * y),
    ):
        assert found.tolist() == [wrapped(exact(x, y), dtype) for x, y in cases]


@pytest.mark.parametrize(
    "dtype, divisor", [(dtype, n) for dtype in SIZES for n in (1, 3, 7, 100, -1, -7) if n >= limits(dtype)[0]]
)
def test_a_number_as_divisor(dtype, divisor):
    low, high = limits(dtype)
    values = [low, low + 1, -1, 0, 1, 50, high - 1, high] * 17
    values = [max(low, each) for each in values]
    x = torch.tensor(values, dtype=dtype)
    for view in (x, x[::3], x.reshape(8, 17).T):
        flat = view.flatten().tolist()
        assert (view // divisor).flatten().tolist() == [wrapped(each // divisor, dtype) for each in flat]
        assert (view % divisor).flatten().tolist() == [wrapped(each % divisor, dtype) for each in flat]
    ones = torch.ones(3, dtype=dtype) * 7
    assert (50 // ones).tolist() == [7] * 3 and (x[:0] // divisor).tolist() == []


@pytest.mark.parametrize("dtype", SIZES)
def test_division_by_zero_changes_nothing(dtype):
    x = torch.tensor([1, 2, 3] * 40, dtype=dtype)
    zeros = torch.tensor([1, 0, 1] * 40, dtype=dtype)
    for divide in (lambda: x.floor_divide_(zeros), lambda: x.remainder_(zeros), lambda: x.fmod_(0)):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide()
        assert x.tolist() == [1, 2, 3] * 40
