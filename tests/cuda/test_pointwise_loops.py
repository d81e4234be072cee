"""The loops of pointwise kernels and of reductions on CUDA, against the CPU: lengths around those of vectors and blocks,
operands that begin anywhere, strides, and functions that are called rarely."""

import mica
import pytest
from mica.nn import functional as F

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

FLOATS = [mica.float32, mica.bfloat16, mica.float16, mica.float64]
NARROW = [mica.uint8, mica.int8, mica.int16]
LENGTHS = [1, 7, 8, 15, 16, 17, 255, 1023, 1024, 1025, 2049, 4096, 10_007]
RARE = {
    "tan": mica.tan,
    "atan": mica.atan,
    "sinh": mica.sinh,
    "elu": F.elu,
    "softplus": F.softplus,
    "hardtanh": F.hardtanh,
    "mish": F.mish,
    "fmod": lambda x: mica.fmod(x, x.flip(0) + 3),
    "fmod_number": lambda x: mica.fmod(x, 0.7),
    "atan2": lambda x: mica.atan2(x, x.flip(0)),
    "addcmul": lambda x: mica.addcmul(x, x.flip(0), x),
    "signbit": mica.signbit,
    "isposinf": mica.isposinf,
}


def numbers(n, dtype):
    if not dtype.is_floating_point:
        low = 0 if dtype == mica.uint8 else -90
        return mica.randint(low, 90, (n,)).to(dtype)
    return (mica.rand(n, dtype=mica.float64) * 2 - 1).to(dtype)


def check(function, x, tolerance=None):
    want, got = function(x), function(x.cuda())
    assert got.dtype == want.dtype and got.stride() == want.stride()
    if tolerance is None or not want.dtype.is_floating_point:
        assert mica.equal(got.cpu(), want)
    else:
        mica.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", RARE)
def test_functions_that_are_called_rarely(name, dtype):
    tolerance = {mica.float64: 1e-12, mica.float32: 2e-6, mica.float16: 2e-3}.get(dtype, 2e-2)
    for n in LENGTHS:
        whole = numbers(2 * n + 3, dtype)
        for x in (whole[:n], whole[1 : n + 1], whole[::2][:n], whole[3:]):
            check(RARE[name], x, tolerance)


@pytest.mark.parametrize("dtype", [*NARROW, mica.int32, mica.int64])
def test_integers_in_vectors(dtype):
    functions = [
        mica.sign,
        mica.square,
        mica.logical_not,
        lambda x: x**3,
        lambda x: x + x,
        lambda x: x == 5,
        lambda x: x < x.flip(0),
        lambda x: x.clamp(2, 60),
        lambda x: x.div(3, rounding_mode="floor"),
        lambda x: mica.where(x > 3, x, 7),
    ]
    for n in LENGTHS:
        whole = numbers(2 * n + 3, dtype)
        for x in (whole[:n], whole[1 : n + 1], whole[::2][:n]):
            for function in functions:
                check(function, x)


@pytest.mark.parametrize("dtype", [mica.complex64, mica.complex128, mica.bool, mica.float64])
def test_elements_without_vectors(dtype):
    for n in LENGTHS:
        whole = mica.randn(2 * n + 3, dtype=mica.complex128 if dtype.is_complex else mica.float64)
        whole = whole > 0 if dtype == mica.bool else whole.to(dtype)
        for x in (whole[:n], whole[1 : n + 1], whole[::2][:n]):
            check(mica.logical_not, x)
            check(lambda x: x == x.flip(0), x)
            if dtype != mica.bool:
                check(mica.neg, x)
                check(mica.square, x, 1e-6)


def test_broadcast_bytes():
    mask = mica.rand(37, 1000) > 0.5
    row = mica.rand(1000) > 0.5
    x = mica.randint(0, 200, (37, 1000), dtype=mica.uint8)
    for width in (16, 24, 1000, 33):
        assert mica.equal((mask.cuda()[:, :width] & row.cuda()[:width]).cpu(), mask[:, :width] & row[:width])
        assert mica.equal((x.cuda()[:, :width] + x.cuda()[:, :1]).cpu(), x[:, :width] + x[:, :1])
        assert mica.equal((x.cuda()[:, ::2] + x.cuda()[0, ::2]).cpu(), x[:, ::2] + x[0, ::2])


def test_logarithms_of_complex_numbers():
    inf, nan = float("inf"), float("nan")
    parts = [0.0, -0.0, 1.0, -1.0, 1 + 2**-20, 1e-3, 1e30, -3e38, 1e-40, inf, -inf, nan]
    x = mica.tensor([complex(a, b) for a in parts for b in parts], dtype=mica.complex64)
    near = mica.polar(1 + 1e-4 * mica.randn(1000), 6 * mica.rand(1000))
    for z in (x, near, mica.randn(1000, dtype=mica.complex64)):
        want = z.to(mica.complex128).log()
        got = z.cuda().log().cpu()
        for part in (mica.real, mica.imag):
            mica.testing.assert_close(part(got), part(want).float(), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [mica.float32, mica.bfloat16, mica.float64, mica.int64, mica.uint8])
@pytest.mark.parametrize("shape", [(40, 300), (3000, 4096 + 6), (1100, 2048), (1100, 513), (70, 33)])
def test_reductions_of_strided_matrices(shape, dtype):
    rows, columns = shape
    whole = mica.randint(0, 7, (rows, 2 * columns)).to(dtype)
    there = whole.cuda()
    for x, y in (
        (whole[:, ::2], there[:, ::2]),
        (whole[:, 1 : columns + 1], there[:, 1 : columns + 1]),
        (whole.t(), there.t()),
    ):
        for dims in ((0,), (1,), (0, 1)):
            for name in ("sum", "amax", "count_nonzero"):
                want, got = getattr(x.long(), name)(dims), getattr(y, name)(dims)
                assert mica.equal(got.cpu().double(), want.to(got.dtype).double()), (name, dims)
        for dim in (0, 1):
            for name in ("argmax", "argmin"):
                assert mica.equal(getattr(y, name)(dim).cpu(), getattr(x, name)(dim)), (name, dim)
        ones = (x > 0).to(dtype)
        assert mica.equal(ones.cuda().prod(0).cpu(), ones.prod(0)) and mica.equal(
            ones.cuda().prod(1).cpu(), ones.prod(1)
        )
        if dtype.is_floating_point:
            want, got = x.double().var(0), y.var(0).cpu().double()
            assert (want - got).abs().max().item() < (0.05 if dtype == mica.bfloat16 else 1e-5)


@pytest.mark.parametrize("dtype", [mica.float32, mica.float64, mica.int64, mica.complex64, mica.bfloat16])
@pytest.mark.parametrize("shape", [(64, 64), (300, 130), (33, 65), (1, 9), (9, 1), (64, 100_000)])
def test_running_sums_across_a_matrix(shape, dtype):
    x = mica.randint(-3, 4, shape).to(dtype)
    if dtype == mica.bfloat16:
        x = x[:, :30]
    for y in (x.t(), x.cuda().t()):
        for dim in (0, 1):
            got, want = y.cumsum(dim), x.long().t().cumsum(dim) if not dtype.is_complex else x.t().cumsum(dim)
            assert mica.equal(got.cpu(), want.to(got.dtype))
    signs = mica.where(x.real > 0 if dtype.is_complex else x > 0, 1, -1).to(dtype)
    assert mica.equal(signs.cuda().t().cumprod(1).cpu(), signs.t().cumprod(1))
