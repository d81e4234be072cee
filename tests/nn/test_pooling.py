"""Pooling: NumPy's windows, gradients, orders in memory, empty batches, the meta device, errors."""

import ctypes
import itertools
import math
import mmap
import os

import mica
import mica.nn.functional as F
import numpy as np
import pytest
from mica import nn
from mica.autograd import gradcheck, gradgradcheck


def windows(x, kernel, stride, padding, dilation, fill):
    """Every window of the last dimensions, flattened, as NumPy reads them."""
    n = len(kernel)
    x = np.pad(x, [(0, 0)] * (x.ndim - n) + [(p, p) for p in padding], constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    counts = [(size - r) // s + 1 for size, r, s in zip(x.shape[-n:], reach, stride, strict=True)]
    taken = []
    for place in itertools.product(*map(range, counts)):
        index = tuple(slice(o * s, o * s + r, d) for o, s, r, d in zip(place, stride, reach, dilation, strict=True))
        taken.append(x[(..., *index)].reshape(*x.shape[: x.ndim - n], -1))
    return np.stack(taken, -2).reshape(*x.shape[: x.ndim - n], *counts, -1)


CASES = [
    ((2, 3, 17), (3,), (2,), (1,), (1,)),
    ((3, 40), (4,), (1,), (2,), (2,)),
    ((2, 3, 9, 40), (3, 2), (2, 1), (1, 0), (1, 3)),
    ((4, 7, 35), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((1, 2, 5, 6, 33), (2, 3, 2), (1, 2, 3), (1, 1, 0), (2, 1, 1)),
]
POOLS = {
    1: (F.max_pool1d, F.avg_pool1d, F.max_unpool1d),
    2: (F.max_pool2d, F.avg_pool2d, F.max_unpool2d),
    3: (F.max_pool3d, F.avg_pool3d, F.max_unpool3d),
}


@pytest.mark.parametrize("shape,kernel,stride,padding,dilation", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8", "int16", "int32", "int64"])
def test_maxima(shape, kernel, stride, padding, dilation, dtype):
    values = np.random.randint(-40, 40, shape)
    x = mica.tensor(values, dtype=getattr(mica, dtype))
    pool = POOLS[len(kernel)][0]
    out, indices = pool(x, kernel, stride, padding, dilation, return_indices=True)
    expected = windows(values.astype(float), kernel, stride, padding, dilation, -np.inf).max(-1)
    np.testing.assert_array_equal(out.double().numpy(), expected)
    np.testing.assert_array_equal(pool(x, kernel, stride, padding, dilation).double().numpy(), expected)
    flat = values.reshape(*shape[: len(shape) - len(kernel)], -1)
    found = np.take_along_axis(flat, indices.numpy().reshape(*flat.shape[:-1], -1), -1)
    np.testing.assert_array_equal(found.reshape(out.shape), expected)


def before_a_wall(values):
    """The values in memory that ends with a page's last byte; nobody may read the page behind it."""
    size = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + mmap.PAGESIZE)
    wall = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)) + size)
    made = np.frombuffer(pages, values.dtype, values.size, size - values.nbytes).reshape(values.shape)
    made[...] = values
    assert ctypes.CDLL(None).mprotect(wall, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return mica.from_numpy(made)


@pytest.mark.skipif(os.environ.get("MICA_CROSS") == "x86_64", reason="qemu reads the lanes that a mask leaves out")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int32"])
@pytest.mark.parametrize("width", [3, 8, 17, 33, 40])
def test_nothing_behind_the_input_is_read(width, dtype):
    values = np.random.randint(-40, 40, (2, 3, width)).astype(dtype)
    walled, free = before_a_wall(values), mica.tensor(values)
    for kernel, stride, padding, dilation in itertools.product((1, 2, 3), (1, 2, 3, 4), (0, 1), (1, 2)):
        if padding > kernel // 2 or (kernel - 1) * dilation >= width + 2 * padding:
            continue
        out = [F.max_pool1d(x, kernel, stride, padding, dilation, return_indices=True) for x in (walled, free)]
        assert mica.equal(out[0][0], out[1][0]) and mica.equal(out[0][1], out[1][1])
        if dtype.startswith("float") and dilation == 1:
            assert mica.equal(*(F.avg_pool1d(x, kernel, stride, padding) for x in (walled, free)))


@pytest.mark.parametrize("shape,kernel,stride,padding,dilation", CASES, ids=str)
def test_means(shape, kernel, stride, padding, dilation):
    values = np.random.randn(*shape)
    out = POOLS[len(kernel)][1](mica.tensor(values), kernel, stride, [p // 2 for p in padding])
    ones = [1] * len(kernel)
    expected = windows(values, kernel, stride, [p // 2 for p in padding], ones, 0).mean(-1)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5, 11, 20])
def test_adaptive_windows(size):
    values = np.random.randn(2, 3, 11)
    spans = [(o * 11 // size, -(-(o + 1) * 11 // size)) for o in range(size)]
    mean = F.adaptive_avg_pool1d(mica.tensor(values), size)
    largest, places = F.adaptive_max_pool1d(mica.tensor(values), size, return_indices=True)
    for o, (a, b) in enumerate(spans):
        np.testing.assert_allclose(mean[..., o].numpy(), values[..., a:b].mean(-1), rtol=1e-12)
        np.testing.assert_array_equal(largest[..., o].numpy(), values[..., a:b].max(-1))
        np.testing.assert_array_equal(places[..., o].numpy(), values[..., a:b].argmax(-1) + a)


FUNCTIONS = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1), (2, 2, 9)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (1, 2, 6, 7)),
    "max_pool2d_ceil": (lambda x: F.max_pool2d(x, 2, 2, 0, ceil_mode=True), (2, 5, 5)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1), (1, 1, 3, 4, 3)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (2, 2, 9)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, False), (1, 2, 6, 7)),
    "avg_pool2d_divisor": (lambda x: F.avg_pool2d(x, 3, 1, 1, divisor_override=4), (2, 5, 4)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 1, 1), (1, 1, 3, 4, 3)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 4), (2, 2, 9)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 8)), (1, 2, 5, 6)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), (1, 1, 3, 4, 3)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 4), (2, 2, 9)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, None)), (1, 2, 5, 6)),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 2), (1, 1, 3, 4, 3)),
    "lp_pool1d": (lambda x: F.lp_pool1d(x.abs() + 1, 3, 2), (2, 2, 8)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x.abs() + 1, 2, 2, 1), (1, 2, 4, 5)),
    "lp_pool3d": (lambda x: F.lp_pool3d(x.abs() + 1, 2, 2), (1, 1, 4, 4, 4)),
    "max_unpool2d": (
        lambda x: F.max_unpool2d(x, mica.tensor([[0, 2, 4], [12, 14, 16]]).expand(2, 2, 3), 2, output_size=(4, 6)),
        (2, 2, 3),
    ),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3, 0.5, 0.6, 1.2), (2, 5, 3, 2)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (1, 8, 2, 3)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (1, 2, 4, 2)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (1, 4, 2, 2)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function, shape = FUNCTIONS[name]
    x = (mica.randperm(math.prod(shape)).double().reshape(shape) / 4).requires_grad_()
    assert gradcheck(function, (x,))
    if "lp" not in name:
        assert gradgradcheck(function, (x,))


def test_fractional_windows_lie_in_the_input_and_repeat():
    x = mica.randn(2, 3, 12, 11, requires_grad=True)
    mica.manual_seed(1)
    out, indices = F.fractional_max_pool2d(x, (2, 3), output_ratio=(0.5, 0.7), return_indices=True)
    mica.manual_seed(1)
    assert mica.equal(out, F.fractional_max_pool2d(x, (2, 3), output_size=(6, 7)))
    assert mica.equal(x.flatten(2).gather(2, indices.flatten(2)).view_as(out), out)
    out.sum().backward()
    assert x.grad.sum().item() == out.numel()
    for samples in (mica.full((2, 3, 2), 7.0), mica.full((2, 3, 2), -3.0), mica.full((2, 3, 2), math.nan)):
        F.fractional_max_pool2d(
            x, 2, output_size=5, _random_samples=samples
        )  # whatever it says, nothing outside is read


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_restores_what_pooling_took(dims):
    pool, _, unpool = POOLS[dims]
    x = mica.rand((2, 3, 7, 8, 6)[: dims + 2]) + 1
    out, indices = pool(x, 2, return_indices=True)
    back = unpool(out, indices, 2, output_size=x.shape)
    assert back.shape == x.shape and mica.equal(pool(back, 2), out)
    assert (back != 0).sum().item() == out.numel()


@pytest.mark.parametrize("wrong", [-1, 36, 2**40])
def test_unpooling_never_writes_outside(wrong):
    indices = mica.zeros(1, 1, 3, 3, dtype=mica.int64)
    indices[0, 0, 2, 1] = wrong
    with pytest.raises(RuntimeError, match=f"Found an invalid max index: {wrong} \\(output volumes are of size 6x6\\)"):
        F.max_unpool2d(mica.ones(1, 1, 3, 3), indices, 2)
    channels_last = mica.ones(1, 2, 3, 3).to(memory_format=mica.channels_last)
    with pytest.raises(RuntimeError, match="Found an invalid max index"):
        F.max_unpool2d(channels_last, indices.expand(1, 2, 3, 3), 2)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_channels_last_stays(name, dtype):
    x = mica.randn(2, 37, 9, 10).to(getattr(mica, dtype))
    last = x.to(memory_format=mica.channels_last).requires_grad_()
    x.requires_grad_()
    out, other = getattr(F, name)(x, 2), getattr(F, name)(last, 2)
    assert other.is_contiguous(memory_format=mica.channels_last)
    mica.testing.assert_close(other, out)
    (grad,), (last_grad,) = mica.autograd.grad(out.sum(), x), mica.autograd.grad(other.sum(), last)
    assert last_grad.is_contiguous(memory_format=mica.channels_last)
    mica.testing.assert_close(last_grad, grad)


def test_ties_and_not_a_number():
    x = mica.tensor([[1.0, 3.0, 3.0, 2.0, math.nan, 5.0, math.nan, -math.inf, -math.inf]])
    out, indices = F.max_pool1d(x, 3, return_indices=True)
    assert out[0, 0] == 3 and indices[0, 0] == 1  # the first of equals
    assert out[0, 1].isnan() and indices[0, 1] == 4
    assert out[0, 2].isnan() and indices[0, 2] == 6
    low = mica.full((1, 6), -math.inf)
    assert F.max_pool1d(low, 3, 2, 1, return_indices=True)[1].tolist() == [[0, 1, 3]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_meta(name):
    function, shape = FUNCTIONS[name]
    if name == "max_unpool2d":
        return
    x = mica.empty(shape, device="meta")
    assert function(x).shape == function(mica.zeros(shape)).shape and function(x).is_meta


def test_empty_batches():
    x = mica.zeros(0, 3, 8, 8, requires_grad=True)
    for out in (
        F.max_pool2d(x, 2),
        F.avg_pool2d(x, 2),
        F.adaptive_avg_pool2d(x, 4),
        F.adaptive_max_pool2d(x, 4),
        F.interpolate(x, 4),
    ):
        assert out.shape == (0, 3, 4, 4)
        out.sum().backward()
    assert x.grad.shape == x.shape


REFUSED = {
    "non-empty 3D or 4D": lambda: F.max_pool2d(mica.ones(5), 2),
    "Given input size: \\(3x6x6\\). Calculated output size: \\(3x0x0\\)": lambda: F.max_pool2d(mica.ones(3, 6, 6), 7),
    "pad should be at most half of effective kernel size": lambda: F.max_pool2d(mica.ones(3, 6, 6), 2, 1, 2),
    "pad must be non-negative": lambda: F.avg_pool2d(mica.ones(3, 6, 6), 2, 1, -1),
    "stride should not be zero": lambda: F.avg_pool2d(mica.ones(3, 6, 6), 2, 0),
    "kernel size should be greater than zero": lambda: F.max_pool2d(mica.ones(3, 6, 6), -2),
    "dilation should be greater than zero": lambda: F.max_pool2d(mica.ones(3, 6, 6), 2, 2, 0, 0),
    "divisor must be not zero": lambda: F.avg_pool2d(mica.ones(3, 6, 6), 2, divisor_override=0),
    "max_pool2d: kernel_size must either be": lambda: F.max_pool2d(mica.ones(3, 6, 6), (2, 2, 2)),
    "max_pool1d\\(\\) padding should be at most half": lambda: F.max_pool1d(mica.ones(3, 6), 2, 1, 2),
    "Expected shape of indices": lambda: F.max_unpool2d(mica.ones(1, 3, 3), mica.zeros(1, 3, 2, dtype=mica.int64), 2),
    "elements in indices should be type int64": lambda: F.max_unpool2d(mica.ones(1, 3, 3), mica.ones(1, 3, 3), 2),
    "Expect _random_samples.size\\(2\\)": lambda: F.fractional_max_pool2d(
        mica.ones(1, 2, 8, 8), 2, output_size=3, _random_samples=mica.rand(1, 2, 3)
    ),
    "pool height 2 too large": lambda: F.fractional_max_pool2d(mica.ones(1, 8, 8), 2, output_size=8),
}


@pytest.mark.parametrize("words", REFUSED)
def test_errors(words):
    with pytest.raises(RuntimeError, match=words):
        REFUSED[words]()


def test_modules_call_their_functions():
    x = mica.randn(2, 4, 8, 8)
    assert mica.equal(nn.MaxPool2d(3, 2, 1)(x), F.max_pool2d(x, 3, 2, 1))
    out, indices = nn.MaxPool2d(2, return_indices=True)(x)
    assert nn.MaxUnpool2d(2)(out, indices).shape == x.shape
    assert mica.equal(nn.AvgPool2d(2, divisor_override=3)(x), F.avg_pool2d(x, 2, divisor_override=3))
    assert nn.AdaptiveAvgPool2d((None, 3))(x).shape == (2, 4, 8, 3)
    assert nn.AdaptiveMaxPool2d(3, return_indices=True)(x)[1].dtype == mica.int64
    assert mica.equal(nn.LPPool2d(2, 2)(x), F.lp_pool2d(x, 2.0, 2))
    assert nn.FractionalMaxPool2d(2, output_ratio=0.5)(x).shape == (2, 4, 4, 4)
    assert mica.equal(nn.PixelShuffle(2)(x), F.pixel_shuffle(x, 2))
    assert mica.equal(nn.PixelUnshuffle(2)(nn.PixelShuffle(2)(x)), x)
    assert mica.equal(nn.ChannelShuffle(2)(x)[:, 1], x[:, 2])
    assert repr(nn.MaxPool2d(3, 2)) == "MaxPool2d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False)"
    assert repr(nn.LocalResponseNorm(2)) == "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1.0)"
    with pytest.raises(ValueError, match="only one of output_size and output_ratio"):
        nn.FractionalMaxPool2d(2, 3, 0.5)
    with pytest.raises(ValueError, match="output_ratio must be between 0 and 1"):
        nn.FractionalMaxPool3d(2, output_ratio=1.5)
    with pytest.raises(ValueError, match="CrossMapLRN2d: Expected input to be 4D"):
        nn.CrossMapLRN2d(3)(x[0])


@pytest.mark.parametrize(
    "kernel,stride,dilation,ceil,size", [(5, 1, 1, False, -2), (3, 2, 2, False, -1), (3, 2, 2, True, 0)]
)
def test_windows_larger_than_the_line_say_by_how_much(kernel, stride, dilation, ceil, size):
    with pytest.raises(RuntimeError, match=rf"max_pool1d\(\) Invalid computed output size: {size}$"):
        F.max_pool1d(mica.zeros(1, 2, 2), kernel, stride, 0, dilation, ceil)


@pytest.mark.parametrize("dims", [2, 3])
def test_one_number_stands_for_all_dimensions_in_gradients_too(dims):
    x = mica.randn(1, 2, *[6] * dims).requires_grad_()
    windows = getattr(mica.ops.aten, f"max_pool{dims}d_with_indices")
    (one,) = mica.autograd.grad(windows(x, [3])[0].sum(), x)
    (all_of_them,) = mica.autograd.grad(windows(x, [3] * dims)[0].sum(), x)
    assert mica.equal(one, all_of_them)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_rows_that_are_averaged_in_parts(stride):
    # Long rows are shared by threads. The parts meet without a seam, with torch's rules for their ends.
    x = mica.arange(600_000 * stride, dtype=mica.float64).remainder(1009).reshape(1, 1, -1)
    kernel = 5
    found = F.avg_pool1d(x, kernel, stride, padding=2, ceil_mode=True, count_include_pad=False)
    whole = F.pad(x, (2, 2 + stride))
    ones = F.pad(mica.ones_like(x), (2, 2 + stride))
    sums, counts = (each.unfold(2, kernel, stride)[:, :, : found.shape[2]].sum(3) for each in (whole, ones))
    assert mica.equal(found, sums / counts)
    assert mica.equal(F.avg_pool1d(x.float(), kernel, stride, padding=2), F.avg_pool1d(x, kernel, stride, 2).float())


def test_adaptive_rows_that_are_averaged_in_parts():
    x = mica.arange(1_000_000, dtype=mica.float64).remainder(1009).reshape(2, 1, -1)
    found = F.adaptive_avg_pool1d(x, 300_000)
    o = mica.arange(300_000)
    begin, end = o * 500_000 // 300_000, (o * 500_000 + 500_000 + 299_999) // 300_000
    sums = F.pad(x.cumsum(2), (1, 0))
    assert mica.allclose(found, (sums[..., end] - sums[..., begin]) / (end - begin), rtol=1e-12, atol=1e-6)
