"""Kernels of images that work in vectors where sizes allow it: blocks of pooling and of magnification, group norms,
biases. Each is compared with the CPU, in sizes that fill vectors and in sizes that do not."""

import mica
import pytest
from mica.nn import functional

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not mica.cuda.is_available(), reason="no GPU")]

DTYPES = [mica.float32, mica.float64, mica.float16, mica.bfloat16]
TOLERANCE = {mica.float32: 2e-5, mica.float64: 1e-12, mica.float16: 4e-3, mica.bfloat16: 3e-2}


def results(function, shapes, dtype, device, order):
    """The output of a function of tensors and what it passes back, for inputs that are the same on every device."""
    mica.manual_seed(0)
    inputs = [mica.randn(shape, dtype=mica.float64).to(dtype) for shape in shapes]
    inputs[0] = inputs[0].contiguous(memory_format=order)
    inputs = [x.to(device).requires_grad_() for x in inputs]
    out = function(*inputs)
    out.backward(mica.linspace(-1, 1, out.numel(), dtype=mica.float64).reshape(out.shape).to(dtype).to(device))
    return [out, *(x.grad for x in inputs)]


def check(function, shapes, dtype, order=mica.contiguous_format, slack=1):
    expected = results(function, shapes, mica.float64, "cpu", order)
    found = results(function, shapes, dtype, "cuda", order)
    for a, b in zip(expected, found, strict=True):
        scale = max(1.0, a.abs().max().item())
        assert b.dtype == dtype and (a - b.cpu().double()).abs().max().item() <= slack * TOLERANCE[dtype] * scale


ORDERS = pytest.mark.parametrize("order", [mica.contiguous_format, mica.channels_last], ids=["planes", "channels_last"])
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@EACH_DTYPE
@ORDERS
@pytest.mark.parametrize("shape", [(2, 8, 16, 32), (3, 5, 6, 10), (1, 16, 12, 12)], ids=str)
@pytest.mark.parametrize("size", [2, (2, 1), (3, 2), (1, 2)], ids=str)
def test_average_pools_of_blocks(shape, size, order, dtype):
    check(lambda x: functional.avg_pool2d(x, size), [shape], dtype, order)


@EACH_DTYPE
@pytest.mark.parametrize(
    "options", [{"divisor_override": 3}, {"ceil_mode": True}, {"padding": 1}, {"stride": 1}], ids=str
)
def test_average_pools_that_are_no_blocks_or_divide_otherwise(options, dtype):
    check(lambda x: functional.avg_pool2d(x, 2, **options), [(2, 4, 9, 8)], dtype)


@EACH_DTYPE
@ORDERS
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("shape", [(2, 8, 8, 16), (3, 5, 3, 5)], ids=str)
@pytest.mark.parametrize("factor", [2.0, (4.0, 1.0), 3.0, 1.5, (2.0, 8.0)], ids=str)
def test_magnification(shape, factor, mode, order, dtype):
    check(lambda x: functional.interpolate(x, scale_factor=factor, mode=mode), [shape], dtype, order, slack=16)


def test_magnification_of_bytes_and_volumes():
    image = mica.arange(2 * 3 * 5 * 8, dtype=mica.uint8).reshape(2, 3, 5, 8)
    assert mica.equal(
        functional.interpolate(image.cuda(), scale_factor=2).cpu(), functional.interpolate(image, scale_factor=2)
    )
    check(lambda x: functional.interpolate(x, scale_factor=2.0), [(2, 3, 4, 4, 8)], mica.float32)
    check(lambda x: functional.interpolate(x, scale_factor=2.0), [(2, 3, 16)], mica.float32)


@EACH_DTYPE
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 8, 32, 32), 4), ((3, 6, 5, 7), 3), ((2, 16, 33, 20), 2), ((4, 12), 4), ((2, 8, 1, 1), 8), ((2, 4, 513), 1)],
    ids=str,
)
def test_group_norms(shape, groups, dtype):
    check(
        lambda x, w, b: functional.group_norm(x, groups, w, b), [shape, (shape[1],), (shape[1],)], dtype,
        slack=8 if dtype in (mica.float16, mica.bfloat16) else 4,
    )  # fmt: skip


@EACH_DTYPE
@ORDERS
@pytest.mark.parametrize("shape", [(2, 8, 8, 8), (3, 3, 5, 7)], ids=str)
def test_biases_of_convolutions(shape, order, dtype):
    channels = shape[1]
    before = mica.backends.cudnn.allow_tf32
    mica.backends.cudnn.allow_tf32 = False
    try:
        check(
            lambda x, w, b: functional.conv2d(x, w, b),
            [shape, (channels, channels, 1, 1), (channels,)],
            dtype,
            order,
            slack=8,
        )
    finally:
        mica.backends.cudnn.allow_tf32 = before


@EACH_DTYPE
@pytest.mark.parametrize("shape", [(4, 6, 8, 16), (3, 5, 7, 9)], ids=str)
def test_sums_over_dense_runs(shape, dtype):
    x = mica.linspace(-1, 2, 4096, dtype=mica.float64)[: mica.Size(shape).numel()].reshape(shape).to(dtype)
    for dims in ((0, 2, 3), (0, 2), (0, 3), (1, 3), (2, 0)):
        for name in ("sum", "mean", "amax"):
            expected = getattr(x.double(), name)(dims)
            found = getattr(x.cuda(), name)(dims).cpu().double()
            scale = max(1.0, expected.abs().max().item())
            assert (expected - found).abs().max().item() <= TOLERANCE[dtype] * scale, (dims, name)
