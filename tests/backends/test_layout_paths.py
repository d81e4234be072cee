"""Kernels have paths of their own for layouts, widths and ranges: each agrees with the plain one."""

import math

import mica as torch
import pytest

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool]


def filled(dtype, *shape):
    n = math.prod(shape)
    values = (torch.arange(n) * 37 % 101).reshape(shape)
    return (values % 2 == 0) if dtype == torch.bool else values.to(dtype)


def layouts(dtype, rows, cols):
    whole = filled(dtype, rows, 4 * cols)
    yield whole[:, :cols]
    yield whole[:, ::2][:, :cols]
    yield whole[:, 1 : 3 * cols : 3]
    yield whole[:, ::4]
    yield filled(dtype, cols, rows).t()
    yield filled(dtype, rows, cols).flip(1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_runs_that_are_not_adjacent(dtype):
    for x in layouts(dtype, 37, 83):
        plain = torch.tensor(x.tolist(), dtype=dtype)
        assert torch.equal(x.clone(memory_format=torch.contiguous_format), plain)
        assert torch.equal(x.flip(0, 1), torch.tensor([row[::-1] for row in plain.tolist()[::-1]], dtype=dtype))
        assert torch.equal(torch.where(x == x, x, plain), plain)
        assert torch.equal(x.sum(), plain.sum())
        for dim in (0, 1):
            assert torch.equal(x.sum(dim), plain.sum(dim))
            assert torch.equal(x.amax(dim), plain.amax(dim))
            assert torch.equal(x.cumsum(dim), plain.cumsum(dim))


@pytest.mark.parametrize("shape", [(131, 405), (70, 1301), (2100, 67)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8], ids=str)
def test_scans_and_places_of_what_several_threads_share(dtype, shape):
    for x in layouts(dtype, *shape):
        plain = x.flip(0).flip(0).contiguous()
        for dim in (0, 1):
            assert torch.equal(x.cumsum(dim), plain.cumsum(dim))
            deep = torch.stack((x, x + 1, x)).cumsum(dim + 1)
            assert torch.equal(deep[1], (plain + 1).cumsum(dim)) and torch.equal(deep[2], plain.cumsum(dim))
        assert torch.equal(x.nonzero(), plain.nonzero())
        assert torch.equal(x.to(torch.bool), plain != 0)
        assert torch.equal(x.logical_not(), plain == 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_extremes_and_their_places(dtype, rows):
    for x in layouts(dtype, rows, 45):
        values = x.tolist()
        columns = [list(column) for column in zip(*values, strict=True)]
        assert x.amax().item() == max(map(max, values))
        assert x.amin().item() == min(map(min, values))
        assert x.amax(1).tolist() == [max(row) for row in values]
        assert x.amin(0).tolist() == [min(column) for column in columns]
        if dtype == torch.bool:
            continue
        assert x.argmax(0).tolist() == [column.index(max(column)) for column in columns]
        assert x.argmin(1).tolist() == [row.index(min(row)) for row in values]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17])
def test_short_pieces_of_cat(dtype, count):
    parts = [filled(dtype, 9, 211) if i % 2 else filled(dtype, 9, 211).flip(0) for i in range(count)]
    stacked = torch.stack(parts, -1)
    for i, part in enumerate(parts):
        assert torch.equal(stacked[..., i], part)
    wide = [part.reshape(-1, 1).expand(-1, 1 + i % 3).contiguous() for i, part in enumerate(parts)]
    joined = torch.cat(wide, 1)
    at = 0
    for part in wide:
        assert torch.equal(joined[:, at : at + part.shape[1]], part)
        at += part.shape[1]


def test_softmax_of_columns():
    x = filled(torch.float32, 53, 130) / 9
    x[:, 1] = float("-inf")
    x[3, 2] = float("inf")
    x[4, 5] = float("nan")
    x[5, 6] = float("-inf")
    x[:, 7] -= 500 * torch.arange(53)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        columns = x.to(dtype)
        for function in (torch.softmax, torch.log_softmax):
            turned = function(columns.t().contiguous(), 1).t()
            torch.testing.assert_close(function(columns, 0), turned, equal_nan=True)


def test_exponentials_do_not_depend_on_their_neighbours():
    x = torch.cat([torch.linspace(-110, 95, 997), torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0])])
    for dtype in (torch.float32, torch.float64):
        values = x.to(dtype)
        for function in (torch.exp, torch.sigmoid, torch.erf, torch.nn.functional.silu, torch.nn.functional.gelu):
            alone = torch.stack([function(v) for v in values])
            together = function(values)
            same = (alone == together) | (alone.isnan() & together.isnan())
            assert same.all(), (function, values[~same])


def test_elu_of_groups():
    x = torch.linspace(-3, 3, 259)
    expected = torch.where(x > 0, x, torch.expm1(x))
    torch.testing.assert_close(torch.nn.functional.elu(x), expected)
    torch.testing.assert_close(torch.nn.functional.elu(x.abs() + 0.5), x.abs() + 0.5)


@pytest.mark.parametrize("n", [10, 5000, 200000])
def test_counts(n):
    x = torch.arange(n) * 7919 % 613
    expected = [0] * 613
    for v in x.tolist():
        expected[v] += 1
    assert x.bincount(minlength=613).tolist() == expected
    assert x.to(torch.int32).bincount(minlength=613).tolist() == expected
    with pytest.raises(RuntimeError, match="non-negative"):
        (x - 1).bincount()
    with pytest.raises((IndexError, RuntimeError), match="index"):
        torch.zeros(4, dtype=torch.int64).index_add(0, x, torch.ones(n, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_topk_beside_nan(dtype, largest):
    x = (torch.arange(20000) * 7919 % 20011).to(dtype)
    for nans in ([], [15000], list(range(100, 9000, 700))):
        y = x.clone()
        for i in nans:
            y[i] = float("nan")
        values, indices = y.topk(9, largest=largest)
        expected, _ = y.sort(descending=largest)
        assert torch.equal(values.nan_to_num(-1), expected[:9].nan_to_num(-1))
        assert torch.equal(y[indices].nan_to_num(-1), values.nan_to_num(-1))


def test_bounds_of_clamp():
    for dtype in (torch.uint8, torch.int16, torch.int64, torch.float32, torch.float64):
        x = filled(dtype, 1000)
        low, high = torch.full_like(x, 20), filled(dtype, 1000).flip(0)
        expected = [min(max(a, 20), 60) for a in x.tolist()]
        assert x.clamp(20, 60).tolist() == expected
        assert x.clamp(low, torch.full_like(x[:1], 60)).tolist() == expected
        assert x.clamp(low[:1], high).tolist() == [
            min(max(a, 20), h) for a, h in zip(x.tolist(), high.tolist(), strict=True)
        ]
    assert torch.tensor([float("nan")] * 20).clamp(0, 1).isnan().all()
    assert torch.rand(20).clamp(torch.tensor(float("nan")), torch.tensor(1.0)).isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_apart_in_memory_that_serve_many(dtype):
    x = filled(dtype, 7, 90)
    for row in (filled(dtype, 180)[::2], filled(dtype, 90, 3).t()[1], filled(dtype, 90).flip(0)):
        plain = torch.tensor(row.tolist(), dtype=dtype)
        assert torch.equal(x * row, x * plain)
        assert torch.equal(row * x, x * plain)
        assert torch.equal(torch.where(x == row, row, x), torch.where(x == plain, plain, x))
        assert torch.equal(torch.outer(row, row), torch.outer(plain, plain))
        assert torch.equal(row.expand(5, 90) * row.expand(4, 5, 90), plain * plain.expand(4, 5, 90))


def test_outputs_larger_than_the_caches():
    n = (16 << 20) // 4 + 37
    x, y = torch.rand(n + 3)[3:], torch.rand(n)
    operations = {
        "add": lambda a, b: a + b,
        "number": lambda a, b: 3 - a,
        "exp": lambda a, b: a.exp(),
        "where": lambda a, b: torch.where(a < b, a, b),
        "float64": lambda a, b: a.double(),
        "fill": lambda a, b: torch.full_like(a, 7.5),
        "in place": lambda a, b: a.clone().mul_(b),
        "onto a view": lambda a, b: torch.add(a, b, out=torch.empty(a.numel() + 1)[1:]),
    }
    for name, operation in operations.items():
        whole = operation(x, y)
        for begin in range(0, n, 1 << 20):
            end = min(n, begin + (1 << 20))
            assert torch.equal(whole[begin:end], operation(x[begin:end], y[begin:end])), name
    narrow = torch.cat((x, x, x))
    assert torch.equal(narrow.bfloat16()[n : 2 * n], x.bfloat16())
    assert torch.equal((narrow + narrow > narrow)[-n:], x + x > x)


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("least", [0, -3])
def test_integer_powers_wrap_around(dtype, least):
    if least < 0 and dtype == torch.uint8:
        pytest.skip("uint8 has no negative exponents")
    bits = torch.iinfo(dtype).bits

    def power(base, exponent):
        if exponent < 0:
            return {1: 1, -1: 1 - 2 * (exponent % 2)}.get(base, 0)
        wrapped = base**exponent % 2**bits
        return wrapped - 2**bits if dtype != torch.uint8 and wrapped >= 2 ** (bits - 1) else wrapped

    first = 0 if dtype == torch.uint8 else -128
    base = torch.arange(first, first + 256, dtype=torch.int64).clamp(max=torch.iinfo(dtype).max).to(dtype).repeat(3)
    exponent = (torch.arange(768) * 29 % 113 + least).to(dtype)
    expected = [power(b, e) for b, e in zip(base.tolist(), exponent.tolist(), strict=True)]
    assert torch.pow(base, exponent).tolist() == expected
    wide = torch.stack([base, base], 1)[:, 0], torch.stack([exponent, exponent], 1)[:, 1]
    assert torch.pow(*wide).tolist() == expected
    for constant in (0, 1, 2, 3, 4, 7, 100):
        assert (base**constant).tolist() == [power(b, constant) for b in base.tolist()]
        assert torch.pow(constant, exponent.abs()).tolist() == [power(constant, abs(e)) for e in exponent.tolist()]


@pytest.mark.parametrize("dtype", [*DTYPES[:-1], torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("n", [9, 300, 1999])
def test_places_among_equal_elements(dtype, n):
    rows = torch.stack([torch.arange(n), torch.arange(n).flip(0), torch.arange(n) * 37 % 101]) % 120
    for x in (rows.to(dtype), rows.t().contiguous().to(dtype).t()):
        for row, values in zip(x, x.tolist(), strict=True):
            for largest in (True, False):
                order = sorted(range(n), key=lambda i: (-values[i] if largest else values[i], i))
                for k in (1, 5, 9, min(n, 16), min(n, 17)):
                    top = row.topk(k, 0, largest)
                    assert top.indices.tolist() == order[:k]
                    assert top.values.tolist() == [values[i] for i in order[:k]]
            order = sorted(range(n), key=lambda i: (values[i], i))
            middle = row.median(0)
            assert middle.indices.item() == order[(n - 1) // 2]
            assert middle.values.item() == row.median().item() == values[middle.indices.item()]
            kth = row.kthvalue(n // 3 + 1)
            assert kth.values.item() == values[kth.indices.item()] == values[order[n // 3]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_medians_beside_nan(dtype):
    x = (torch.arange(700) * 37 % 101).to(dtype)
    x[[5, 600]] = float("nan")
    assert x.median(0).indices.item() == 5
    assert x.median().isnan()
    numbers = sorted(v for v in x.tolist() if v == v)
    assert x.nanmedian().item() == x.nanmedian(0).values.item() == numbers[(len(numbers) - 1) // 2]
    assert torch.full((40,), float("nan"), dtype=dtype).nanmedian(0).indices.item() == 0


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128], ids=str)
def test_gather_of_every_width(dtype):
    x = filled(torch.int64, 30, 77).to(dtype)
    index = torch.arange(30 * 131).reshape(30, 131) * 53 % 77
    expected = [[row[i] for i in places] for row, places in zip(x.tolist(), index.tolist(), strict=True)]
    assert x.gather(1, index).tolist() == expected
    assert x.t().gather(0, index.t()).t().tolist() == expected
    with pytest.raises(RuntimeError, match="index 77 is out of bounds for dimension 1 with size 77"):
        x.gather(1, index + (index == 76))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128], ids=str)
@pytest.mark.parametrize("rows,columns", [(2, 2), (2, 8), (3, 3), (3, 5), (4, 4), (5, 4), (8, 8), (16, 16), (17, 16)])
def test_many_small_matrices_change_rows_for_columns(dtype, rows, columns):
    x = filled(dtype, 23, rows, columns)
    expected = [[list(column) for column in zip(*matrix, strict=True)] for matrix in x.tolist()]
    assert x.mT.contiguous().tolist() == expected
    apart = torch.stack([x, x], 1)[:, 0]  # matrices without gaps, which lie apart
    assert apart.mT.contiguous().tolist() == expected
    assert x[:1].expand(9, rows, columns).mT.contiguous().tolist() == expected[:1] * 9
    rows_apart = torch.stack([x, x], 2)[:, :, 0]
    assert rows_apart.mT.contiguous().tolist() == expected


@pytest.fixture(params=[1, 2, 8])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


# Outputs that the nearer caches do not hold: few threads ask for lines ahead, many write past the caches.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("megabytes", [5, 17])
def test_large_outputs(dtype, megabytes, threads):
    count = megabytes * (1 << 20) // dtype.itemsize + 77
    columns = 5000 // dtype.itemsize * 2 + 3
    whole = filled(dtype, count)
    rows = whole[: count // columns * columns].reshape(-1, columns)
    line = filled(dtype, columns)

    def piecewise(f, x, step):
        return torch.cat([f(part) for part in x.split(step)])

    for x, step in ((whole, 300_007), (whole[3:], 300_007), (rows, 70), (rows.flip(1), 70), (rows[:, :-1], 70)):
        for f in (torch.neg, lambda part: part + part, lambda part: part.to(torch.float32), torch.clone):
            if f is not torch.neg or dtype != torch.uint8:
                assert torch.equal(f(x), piecewise(f, x, step))
    assert torch.equal(rows + line, piecewise(lambda part: part + line, rows, 70))
    assert torch.equal(rows * rows[:, :1], piecewise(lambda part: part * part[:, :1], rows, 70))
    assert torch.equal(torch.full_like(rows, 3), piecewise(lambda part: torch.full_like(part, 3), rows, 70))
    guarded = torch.zeros(count + 64, dtype=dtype)
    torch.add(whole, whole, out=guarded[32 : 32 + count])
    assert torch.equal(guarded[32 : 32 + count], whole + whole)
    assert not guarded[:32].any() and not guarded[32 + count :].any()
