"""Loops over rows, with a row, a column or a number beside them, agree with operands written out in full."""

import mica as torch
import pytest

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
    torch.complex64,
]
WIDTHS = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129]


def filled(dtype, *shape, seed=1):
    values = (torch.arange(torch.Size(shape).numel()) * (36 + seed) % 23 + seed).reshape(shape)
    return (values % 2 == 0) if dtype == torch.bool else values.to(dtype)


def beside(dtype, rows, width):
    """Right-hand sides that a matrix of rows x width is combined with."""
    yield filled(dtype, width, seed=2)
    yield filled(dtype, rows, 1, seed=3)
    yield filled(dtype, 1, 1, seed=4)
    yield filled(dtype, rows, 2 * width, seed=5)[:, ::2]
    yield filled(dtype, width, rows, seed=6).t()
    yield filled(dtype, rows, width + 3, seed=7)[:, 3:]
    yield filled(dtype, 2 * rows, 1, seed=8)[::2]


def functions(dtype):
    yield torch.maximum if not dtype.is_complex else torch.add
    yield torch.eq
    if dtype == torch.bool:
        yield torch.logical_xor
        return
    yield from (torch.add, torch.sub, torch.mul)
    yield lambda a, b: torch.add(a, b, alpha=3)
    if dtype.is_floating_point or dtype.is_complex:
        yield torch.div
    if dtype.is_floating_point:
        yield torch.atan2


def written_out(t, shape):
    return t.expand(shape).clone(memory_format=torch.contiguous_format)


def assert_same(a, b, what):
    assert a.dtype == b.dtype and a.shape == b.shape, what
    assert torch.equal(a, b), what


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_columns_and_numbers(dtype, width):
    rows = 5
    wide = filled(dtype, rows, width + 2)
    for a in (filled(dtype, rows, width), wide[:, 2:], wide[:, :width]):
        plain_a = written_out(a, (rows, width))
        for i, b in enumerate(beside(dtype, rows, width)):
            plain_b = written_out(b, (rows, width))
            for function in functions(dtype):
                flat = function(plain_a.flatten(), plain_b.flatten()).reshape(rows, width)
                assert_same(function(a, b), flat, (function, i))
                assert_same(
                    function(b, a), function(plain_b.flatten(), plain_a.flatten()).reshape(rows, width), (function, i)
                )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_in_place_and_within_others(dtype, width):
    rows = 6
    for b in beside(dtype, rows, width):
        whole = filled(dtype, rows, width + 5)
        before = whole.clone()
        inner = whole[:, 2 : 2 + width]
        expected = written_out(inner, (rows, width)) + written_out(b, (rows, width))
        inner += b
        assert_same(inner, expected, b.stride())
        assert_same(whole[:, :2], before[:, :2], "left of it")
        assert_same(whole[:, 2 + width :], before[:, 2 + width :], "right of it")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_both_sides_have_one_value_in_a_row(dtype):
    a, b = filled(dtype, 7, 1), filled(dtype, 7, 1, seed=3)
    for width in WIDTHS:
        sums = a.expand(7, width) + b.expand(7, width)
        assert_same(sums, written_out(a + b, (7, width)), width)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32], ids=str)
def test_more_dimensions_than_two(dtype):
    x = filled(dtype, 3, 4, 5, 40)
    for shape in ((40,), (5, 1), (4, 1, 1), (4, 1, 40), (3, 1, 5, 1), (3, 1, 1, 40), (3, 4, 5, 1)):
        b = filled(dtype, *shape, seed=4)
        expected = (x.flatten() + written_out(b, x.shape).flatten()).reshape(x.shape)
        assert_same(x + b, expected, shape)
        for dims in ((2, 1, 0, 3), (1, 0, 2, 3), (0, 3, 1, 2)):
            assert_same(x.permute(dims) + b.expand(x.shape).permute(dims), expected.permute(dims), (shape, dims))


@pytest.mark.parametrize("shape", [(3000, 100), (100, 3000), (7, 90001), (65537, 9)])
def test_rows_shared_by_threads(shape):
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for dtype in (torch.float32, torch.int64):
                x = filled(dtype, *shape)
                for b in (filled(dtype, shape[1], seed=2), filled(dtype, shape[0], 1, seed=3)):
                    expected = (x.flatten() * written_out(b, shape).flatten()).reshape(shape)
                    assert_same(x * b, expected, (shape, count))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_three_operands(dtype):
    for width in WIDTHS:
        x, row, column = filled(dtype, 6, width), filled(dtype, width, seed=2), filled(dtype, 6, 1, seed=3)
        for y, z in ((row, column), (column, row), (column, column), (x, column), (row, x)):
            full = [written_out(t, x.shape).flatten() for t in (x, y, z)]
            assert_same(torch.addcmul(x, y, z), torch.addcmul(*full).reshape(x.shape), width)
            assert_same(torch.clamp(x, y, z), torch.clamp(*full).reshape(x.shape), width)
