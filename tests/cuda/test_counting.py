"""Counted integers on the GPU, against the CPU: bincount, and unique with tables, by sorting, and in order."""

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

INTEGERS = [mica.uint8, mica.int8, mica.int16, mica.int32, mica.int64]
LENGTHS = [1, 15, 2049, 100_003, 3_000_001]


def same(there, here):
    assert there.dtype == here.dtype and there.shape == here.shape
    assert mica.equal(there.cpu(), here)


def compare_unique(x, **options):
    there, here = mica.unique(x.cuda(), **options), mica.unique(x, **options)
    for got, want in zip(*(t if isinstance(t, tuple) else (t,) for t in (there, here)), strict=True):
        same(got, want)


def compare_all(x):
    compare_unique(x)
    compare_unique(x, return_inverse=True)
    compare_unique(x, return_counts=True)
    compare_unique(x, return_inverse=True, return_counts=True)
    for options in ({}, {"return_inverse": True}, {"return_inverse": True, "return_counts": True}):
        there = mica.unique_consecutive(x.cuda(), **options)
        here = mica.unique_consecutive(x, **options)
        for got, want in zip(*(t if isinstance(t, tuple) else (t,) for t in (there, here)), strict=True):
            same(got, want)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_bincount(dtype, n):
    x = mica.randint(0, 100, (n,)).to(dtype)
    for begin in (0, 1, 3):  # the vectors of a thread begin where the memory is aligned
        if begin >= n:
            continue
        same(x.cuda()[begin:].bincount(), x[begin:].bincount())
    same(x.cuda().bincount(minlength=300), x.bincount(minlength=300))
    same(x.cuda()[::2].bincount(), x[::2].bincount())
    all_equal = mica.full((n,), 7, dtype=dtype)
    same(all_equal.cuda().bincount(), all_equal.bincount())


@pytest.mark.parametrize("bins", [12287, 12288, 12289, 40_000, 73_728, 73_729, 1_000_000])
def test_bincount_of_many_bins(bins):
    for dtype in (mica.int32, mica.int64):
        x = mica.randint(0, bins, (200_001,)).to(dtype)
        x[0] = bins - 1
        same(x.cuda().bincount(), x.bincount())
        same(x.cuda()[:3].bincount(minlength=bins + 5), x[:3].bincount(minlength=bins + 5))


def test_bincount_of_nothing_and_of_bad_values():
    none = mica.zeros(0, dtype=mica.int64, device="cuda")
    assert none.bincount().numel() == 0 and none.bincount(minlength=2).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="non-negative"):
        mica.tensor([1, -1], dtype=mica.int8, device="cuda").bincount()


@pytest.mark.parametrize("n", LENGTHS[:4])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_unique_of_few_values(dtype, n):
    low = 0 if dtype == mica.uint8 else -50
    compare_all(mica.randint(low, 70, (n,)).to(dtype))
    compare_unique(mica.full((n,), 3, dtype=dtype), return_inverse=True, return_counts=True)


@pytest.mark.parametrize("n", [2049, 100_003])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_unique_of_the_whole_range(dtype, n):
    info = mica.iinfo(dtype)
    x = mica.randint(max(info.min, -(2**62)), min(info.max, 2**62), (n,)).to(dtype)
    x[0], x[-1] = info.min, info.max
    compare_all(x)
    compare_all(x.repeat(2))


@pytest.mark.parametrize(("low", "high"), [(-6144, 6144), (-6144, 6145), (1000, 1 << 20), (-(1 << 20), -1000)])
def test_unique_about_the_size_of_a_table(low, high):
    for dtype in (mica.int32, mica.int64):
        x = mica.randint(low, high, (50_001,)).to(dtype)
        x[0], x[1] = low, high - 1
        compare_all(x)


@pytest.mark.parametrize("dtype", [mica.float32, mica.float64, mica.float16, mica.bfloat16])
def test_unique_of_floats(dtype):
    x = mica.randint(-9, 9, (30_000,)).to(dtype) / 4
    compare_all(x)
    x[5], x[6], x[7] = 0.0, -0.0, 0.0
    got, want = x.cuda().unique(), x.unique()
    same(got.signbit(), want.signbit())
    x[::1000] = float("nan")
    got, want = (mica.unique(t, return_counts=True) for t in (x.cuda(), x))
    same(got[0].nan_to_num(99), want[0].nan_to_num(99))
    same(got[1], want[1])
