"""Layouts that the kernels bring together on their way: each result is that of contiguous copies, bit for bit."""

import math

import mica
import pytest

DTYPES = (mica.uint8, mica.bfloat16, mica.float32, mica.float64, mica.int64, mica.complex128)


def numbers(dtype, *shape, seed=0):
    mica.manual_seed(seed)
    if dtype.is_complex:
        return mica.complex(mica.randn(*shape), mica.randn(*shape)).to(dtype)
    return mica.randn(*shape).to(dtype) if dtype.is_floating_point else mica.randint(0, 100, shape, dtype=dtype)


def strided(dtype, rows, columns, seed=0):
    return numbers(dtype, rows, 2 * columns, seed=seed)[:, ::2]


def dense(t):
    return t.clone(memory_format=mica.contiguous_format)


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert mica.equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3, 5, 40])
@pytest.mark.parametrize("shape", [(9, 17), (70, 300), (3, 20, 33), (1, 40)])
def test_stack_of_transposed_matrices_behind_the_last_dimension(dtype, count, shape):
    parts = [numbers(dtype, *shape, seed=i).mT for i in range(count)]
    same(mica.stack(parts, -1), mica.stack([dense(p) for p in parts], -1))


def test_stack_of_unlike_layouts_behind_the_last_dimension():
    a, b = numbers(mica.float32, 40, 30).t(), numbers(mica.float32, 30, 40, seed=1)
    same(mica.stack((a, b), -1), mica.stack((dense(a), b), -1))
    x = numbers(mica.float32, 20, 4, 30, 2)
    for dims in ((2, 1, 0, 3), (3, 2, 1, 0), (1, 3, 2, 0)):
        p = x.permute(dims)
        same(mica.stack((p, p + 1), -1), mica.stack((dense(p), dense(p) + 1), -1))
    wide = numbers(mica.float32, 30, 1).expand(30, 40).t()
    same(mica.stack((wide, wide), -1), mica.stack((dense(wide), dense(wide)), -1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_roll_of_a_transposed_matrix(dtype):
    x = numbers(dtype, 80, 70)
    for shift in (1, 3, 8, 67):
        same(x.t().roll(shift, 1), dense(x.t()).roll(shift, 1))
        same(x.t().roll(shift, 0), dense(x.t()).roll(shift, 0))


def test_a_transposed_copy_that_begins_within_a_cache_line():
    x = numbers(mica.float64, 96, 64)
    for start in (1, 3, 5):
        out = mica.zeros(64, 128, dtype=mica.float64)
        out[:, start : start + 96] = x.t()
        same(out[:, start : start + 96], dense(x.t()))
        assert out[:, :start].count_nonzero() == 0 and out[:, start + 96 :].count_nonzero() == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 37, 3000])
def test_where_and_masked_fill_of_strided_inputs(dtype, rows):
    a, b = strided(dtype, rows, 50), strided(dtype, rows, 50, seed=1)
    mask = numbers(mica.int64, rows, 100, seed=2)[:, ::2] > 50
    same(mica.where(mask, a, b), mica.where(dense(mask), dense(a), dense(b)))
    same(mica.where(mask[:, :1], a, b), mica.where(dense(mask[:, :1]), dense(a), dense(b)))
    same(mica.where(mask, a, b[0, 0]), mica.where(dense(mask), dense(a), dense(b)[0, 0]))
    same(mica.where(mask[0, 0], a, b), mica.where(dense(mask)[0, 0], dense(a), dense(b)))
    same(a.masked_fill(mask, 3), dense(a).masked_fill(dense(mask), 3))
    in_place, expected = strided(dtype, rows, 50), dense(a)
    same(in_place.masked_fill_(mask, 3), expected.masked_fill_(dense(mask), 3))


@pytest.mark.parametrize("dtype", [mica.float32, mica.float64, mica.bfloat16])
@pytest.mark.parametrize("rows", [1, 37, 3000])
def test_one_strided_tensor_as_several_inputs(dtype, rows):
    a, b = strided(dtype, rows, 50), strided(dtype, rows, 50, seed=1)
    same(mica.addcmul(a, a, b), mica.addcmul(dense(a), dense(a), dense(b)))
    same(mica.addcmul(a, b, b), mica.addcmul(dense(a), dense(b), dense(b)))
    same(a * a, dense(a) * dense(a))
    same(mica.addcmul(a, a.flip(1), b), mica.addcmul(dense(a), dense(a).flip(1), dense(b)))
    same(a + a[:, :1], dense(a) + dense(a)[:, :1])


@pytest.mark.parametrize("dtype", [mica.int8, mica.int32, mica.int64])
@pytest.mark.parametrize("shape", [(2, 5000), (130, 70), (1, 4096), (40000, 3), (3, 50, 40)])
def test_scans_of_transposed_integers(dtype, shape):
    x = numbers(mica.int64, *shape).to(dtype) - 50
    for turned in (x.mT, x.transpose(0, -1)):
        for dim in range(turned.dim()):
            same(turned.cumsum(dim, dtype=dtype), dense(turned).cumsum(dim, dtype=dtype))
            same(turned.cumprod(dim, dtype=dtype), dense(turned).cumprod(dim, dtype=dtype))


@pytest.mark.parametrize("dtype", [mica.bfloat16, mica.float16, mica.float32, mica.float64])
@pytest.mark.parametrize("shape", [(3, 7), (250, 401), (401, 250), (5, 2100), (2, 60, 700)])
def test_scans_of_strided_and_transposed_floats(dtype, shape):
    x = numbers(dtype, *shape)
    for view in (x.mT, x[..., ::2], x[..., ::3].mT, x.flip(-1)[..., ::2], x.unsqueeze(-1).expand(*shape, 2).mT):
        for dim in range(view.dim()):
            same(view.cumsum(dim), dense(view).cumsum(dim))


@pytest.mark.parametrize("dtype", DTYPES)
def test_flips_of_every_length(dtype):
    for length in (*range(1, 70), 400, 1001):
        x = numbers(dtype, 2, length)
        same(x.flip(1), x[:, mica.arange(length - 1, -1, -1)])


@pytest.mark.parametrize("dtype", [mica.uint8, mica.int8, mica.int16, mica.int32, mica.int64])
def test_squares_and_cubes_of_integers_wrap_around(dtype):
    info = mica.iinfo(dtype)
    values = [0, 1, 2, 3, 11, 12, 15, 16, info.max, info.max - 1, info.min, info.min + 1] * 5
    x = mica.tensor(values, dtype=dtype)
    bits = info.bits

    def wrapped(v):
        v %= 1 << bits
        return v - (1 << bits) if v > info.max else v

    for exponent in (2, 3):
        expected = [wrapped(v**exponent) for v in values]
        assert (x**exponent).tolist() == expected
        assert x[::2].pow(exponent).tolist() == expected[::2]
        assert x.pow(mica.full_like(x, exponent)).tolist() == expected
    assert x.square().tolist() == [wrapped(v * v) for v in values]


def test_conversions_between_wide_integers_and_floats():
    values = [0, 1, -1, 2**24 + 1, -(2**24) - 1, 2**53 + 1, -(2**53) - 1, 2**62 + 2**38 + 1, 2**63 - 1, -(2**63), 12345]
    whole = mica.tensor(values * 7)
    for x in (whole, whole[::2], whole.reshape(7, 11).t(), whole[:1].expand(50)):
        assert x.double().flatten().tolist() == [float(v) for v in x.flatten().tolist()]
        # Twice rounded would be wrong for 2^62 + 2^38 + 1, which lies just above the middle of two floats.
        assert x.float().flatten().tolist() == [nearest_float(v) for v in x.flatten().tolist()]
    floats = mica.tensor([0.0, -0.5, 1.9, -1.9, 2.0**40 + 0.5, -(2.0**62), 7.5] * 9, dtype=mica.float64)
    for x in (floats, floats[::2], floats.reshape(7, 9).t(), floats[2:3].expand(40)):
        assert x.long().flatten().tolist() == [math.trunc(v) for v in x.flatten().tolist()]
        assert x.float().long().flatten().tolist() == [math.trunc(v) for v in x.float().flatten().tolist()]


def nearest_float(v):
    """The float32 nearest to an integer, by integers alone."""
    shift = max(0, abs(v).bit_length() - 24)
    kept, rest = divmod(abs(v), 1 << shift)
    half = (1 << shift) / 2
    kept += shift > 0 and (rest > half or (rest == half and kept % 2 == 1))
    return math.copysign(kept * 2.0**shift, v) if v else 0.0


@pytest.mark.parametrize("source", [mica.float32, mica.float64])
@pytest.mark.parametrize("to", [mica.int8, mica.uint8, mica.int16, mica.int32, mica.int64])
def test_floats_beyond_an_integers_range_do_not_depend_on_their_place(source, to):
    values = [3e9, -3e9, 1e19, -1e19, 5e9, 2.0**32 + 7, math.inf, -math.inf, 2.5, 70000.0, -1.5]
    alone = [mica.tensor([value], dtype=source).to(to).item() for value in values]
    for count in (1, 2, 3, 9):
        assert mica.tensor(values * count, dtype=source).to(to).tolist() == alone * count


@pytest.mark.parametrize("offset", [0, 1, 5, 16])
def test_what_is_too_large_for_the_caches(offset):
    n = 17 << 18  # 17 MB of float32
    whole = mica.arange(n + 32, dtype=mica.float32)
    x = whole[offset : offset + n]
    out = mica.zeros(n + 32)
    out[offset : offset + n].copy_(x)
    assert mica.equal(out[offset : offset + n], x)
    assert out[:offset].count_nonzero() == 0 and out[offset + n :].count_nonzero() == 0
    out[offset : offset + n].fill_(7)
    assert bool((out[offset : offset + n] == 7).all())
    assert out[:offset].count_nonzero() == 0 and out[offset + n :].count_nonzero() == 0
    parts = [x[i * 1000003 : (i + 1) * 1000003] for i in range(4)]
    joined = mica.cat(parts)
    for i, part in enumerate(parts):
        assert mica.equal(joined[i * 1000003 : (i + 1) * 1000003], part)
    total = mica.add(x, whole[:n])
    assert mica.equal(total[::997], x[::997] + whole[:n][::997]) and mica.equal(
        total[-100:], x[-100:] + whole[n - 100 : n]
    )
