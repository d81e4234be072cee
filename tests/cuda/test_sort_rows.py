"""Rows that a block sorts, and longer ones, against the CPU: order of equal elements, NaN, zeros of both signs, strides."""

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

INTEGERS = [mica.uint8, mica.int8, mica.int16, mica.int32, mica.int64]
FLOATS = [mica.float32, mica.float64, mica.float16, mica.bfloat16]
LENGTHS = [1, 2, 31, 128, 129, 1000, 1024, 1025, 4096, 4097]


def same(there, here):
    assert there.dtype == here.dtype and there.shape == here.shape
    there = there.cpu()
    if here.dtype.is_floating_point:
        assert mica.equal(there.isnan(), here.isnan()) and mica.equal(there.signbit(), here.signbit())
        there, here = there.nan_to_num(7), here.nan_to_num(7)
    assert mica.equal(there, here)


def compare(here, dim=-1):
    for descending in (False, True):
        got = here.cuda().sort(dim=dim, descending=descending, stable=True)
        want = here.sort(dim=dim, descending=descending, stable=True)
        same(got.values, want.values)
        same(got.indices, want.indices)
        same(here.cuda().argsort(dim=dim, descending=descending, stable=True), want.indices)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", [*INTEGERS, mica.bool])
def test_integers(dtype, n):
    if dtype == mica.bool:
        return compare(mica.rand(5, n) < 0.5)
    info = mica.iinfo(dtype)
    x = mica.randint(max(info.min, -(2**62)), min(info.max, 2**62), (5, n)).to(dtype)
    x[:, 0] = info.max
    x[1, -1] = info.min
    compare(x)
    compare(mica.randint(0, 5, (5, n)).to(dtype))
    compare(mica.full((3, n), 9, dtype=dtype))
    compare(mica.randint(0, 5, (3, n)).to(dtype) * 16 + 5)  # the lowest bits are the same


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype, n):
    x = mica.randn(6, n).to(dtype)
    compare(x)
    x[:, ::3] = 0.0
    x[:, 1::7] = -0.0
    x[1, ::5] = float("nan")
    x[2, 2::5] = float("inf")
    x[3, 1::5] = -float("inf")
    compare(x)
    compare(mica.full((2, n), float("nan"), dtype=dtype))


@pytest.mark.parametrize("dtype", [mica.uint8, mica.int16, mica.float32, mica.int64])
def test_strides(dtype):
    x = mica.randint(0, 100, (30, 70, 40)).to(dtype)
    for dim in range(3):
        compare(x, dim)
        compare(x[::2, 1:, ::3], dim)
        compare(x.permute(2, 0, 1), dim)
    values, indices = mica.empty(70, 30, dtype=dtype).cuda().t(), mica.empty(70, 30, dtype=mica.int64).cuda().t()
    mica.sort(x[:, :, 0].cuda(), 1, out=(values, indices))
    want = x[:, :, 0].sort(dim=1, stable=True)
    same(values, want.values)
    same(indices, want.indices)
    compare(x[0, 0, 0])


def test_nothing():
    assert mica.empty(3, 0, device="cuda").sort(1).values.shape == (3, 0)
    assert mica.empty(0, 5, device="cuda").sort(1).indices.shape == (0, 5)
