"""Kernels that have a way of their own for whole vectors, against the CPU: pooling, batch norm, topk, index_add, pixels,
transforms, special functions."""

import mica
import pytest
from mica.nn import functional as F

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

DTYPES = [mica.float32, mica.bfloat16, mica.float16]
FORMATS = [mica.contiguous_format, mica.channels_last]


def close(there, here, tolerance):
    assert there.shape == here.shape and there.dtype == here.dtype
    mica.testing.assert_close(there.cpu(), here, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "shape", [(2, 16, 13, 17), (1, 3, 8, 9), (3, 64, 1, 1), (2, 24, 2, 31), (2, 5, 14, 16), (3, 4, 7, 4)]
)
def test_max_pool_of_images(shape, format, dtype):
    x = mica.randn(shape).to(dtype).contiguous(memory_format=format)
    x[0, 0, 0, 0] = float("nan")
    for kernel, stride, padding in ((3, 2, 1), (2, 2, 0), (3, 1, 1), (2, 1, 1), (3, 3, 0)):
        if min(shape[2:]) + 2 * padding < kernel:
            continue
        for ceil_mode in (False, True):
            want, where = F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil_mode, return_indices=True)
            got, there = F.max_pool2d(x.cuda(), kernel, stride, padding, ceil_mode=ceil_mode, return_indices=True)
            assert there.tolist() == where.tolist()
            assert mica.equal(got.cpu().nan_to_num(9), want.nan_to_num(9)) and got.stride() == want.stride()


@pytest.mark.parametrize("format", FORMATS)
def test_max_pool_has_its_gradient(format):
    x = mica.randn(2, 8, 9, 11).contiguous(memory_format=format)
    grads = []
    for device in ("cpu", "cuda"):
        leaf = x.clone().to(device).requires_grad_()
        y = F.max_pool2d(leaf, 3, 2, 1)
        y.backward(mica.arange(y.numel(), dtype=mica.float32).view(y.shape).to(device))
        grads.append(leaf.grad.cpu())
    assert mica.equal(*grads)


@pytest.mark.parametrize("dtype", DTYPES + [mica.float64])
@pytest.mark.parametrize("shape", [(4, 64, 7, 9), (2, 24, 5, 5), (3, 2048, 2, 2), (5, 6, 3, 3), (700, 8, 3, 2)])
@pytest.mark.parametrize("format", FORMATS)
def test_batch_norm_of_channels_side_by_side(shape, dtype, format):
    x = (mica.randn(shape) * 3 + mica.arange(shape[1]).view(1, -1, 1, 1) / 10).to(dtype)
    x = x.contiguous(memory_format=format)
    grad = mica.randn(shape).to(dtype).contiguous(memory_format=format)
    wide = mica.float64 if dtype == mica.float64 else mica.float32
    weight, bias = mica.rand(shape[1], dtype=wide) + 0.5, mica.randn(shape[1], dtype=wide)
    results = []
    for device, computed in (("cpu", mica.float64), ("cuda", dtype)):
        leaf = x.clone().to(device, computed).requires_grad_()
        kept = wide if computed == dtype else mica.float64
        w, b = (t.clone().to(device, kept).requires_grad_() for t in (weight, bias))
        mean, var = mica.zeros(shape[1], device=device, dtype=kept), mica.ones(shape[1], device=device, dtype=kept)
        y = F.batch_norm(leaf, mean, var, w, b, training=True)
        y.backward(grad.to(device, computed))
        eval_y = F.batch_norm(leaf.detach(), mean, var, w.detach(), b.detach(), training=False)
        results.append([t.detach().cpu().double() for t in (y, leaf.grad, w.grad, b.grad, mean, var, eval_y)])
    tolerance = {mica.float64: 1e-10, mica.float32: 2e-4}.get(dtype, 0.03)
    for want, got in zip(*results, strict=True):
        scale = want.abs().max().item()
        assert (got - want).abs().max().item() <= tolerance * max(scale, 1)


@pytest.mark.parametrize("dtype", [*DTYPES, mica.float64, mica.int32, mica.int64, mica.uint8])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_long_rows(dtype, largest):
    for shape, k in (((3, 20000), 50), ((16, 128000), 50), ((2, 8193), 1000), ((1, 70001), 1024), ((40, 5000), 1)):
        x = (mica.randn(shape) * 100).to(dtype)
        want, _ = x.topk(k, largest=largest)
        got, there = x.cuda().topk(k, largest=largest)
        assert mica.equal(got.cpu(), want)
        # Equal elements: the first of them are taken, in their order.
        assert mica.equal(x.gather(1, there.cpu()), want)
        assert all(len(set(row)) == k for row in there.tolist())


def test_topk_of_other_strides_and_of_nan():
    x = mica.randn(9000, 3)
    x[17, 1] = float("nan")
    got, there = x.cuda().topk(5, dim=0)
    want, where = x.topk(5, dim=0)
    assert there.tolist() == where.tolist() and mica.equal(got.cpu().nan_to_num(1e9), want.nan_to_num(1e9))


@pytest.mark.parametrize("dtype", DTYPES + [mica.float64, mica.int64])
def test_index_add_of_rows(dtype):
    for width in (512, 8, 5):
        table, index = (mica.randn(40, width) * 4).to(dtype), mica.randint(0, 40, (300,))
        source = (mica.rand(300, width) * 4).round().to(dtype)
        for alpha in (1, 2):
            want = table.double().index_add(0, index, source.double(), alpha=alpha)
            got = table.cuda().index_add(0, index.cuda(), source.cuda(), alpha=alpha).cpu()
            tolerance = {mica.float32: 1e-5, mica.float64: 1e-12, mica.int64: 0}.get(dtype, 0.05)
            assert got.dtype == dtype
            mica.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance * 20)
    table = mica.zeros(4, 2, 8, device="cuda")
    table.index_add_(1, mica.tensor([1, 1, 0], device="cuda"), mica.ones(4, 3, 8, device="cuda"))
    assert table[:, 0].sum().item() == 32 and table[:, 1].sum().item() == 64
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 4"):
        mica.zeros(4, 8, device="cuda").index_add_(0, mica.tensor([7], device="cuda"), mica.ones(1, 8, device="cuda"))
        mica.cuda.synchronize()


@pytest.mark.parametrize(
    "dtype", [mica.float32, mica.float16, mica.uint8, mica.float64, mica.complex64, mica.complex128]
)
@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_planes_and_pixels(dtype, channels):
    for places in ((6, 16), (7, 5)):
        x = mica.randint(0, 100, (2, *places, channels)).to(dtype)
        y = x.cuda().permute(0, 3, 1, 2).contiguous()
        assert mica.equal(y.cpu(), x.permute(0, 3, 1, 2).contiguous())
        z = y.contiguous(memory_format=mica.channels_last)
        assert z.stride() == (places[0] * places[1] * channels, 1, places[1] * channels, channels)
        assert mica.equal(z.cpu(), y.cpu())
        assert mica.equal(x[1:, 1:].cuda().permute(0, 3, 1, 2).contiguous().cpu(), x[1:, 1:].permute(0, 3, 1, 2))


@pytest.mark.parametrize("dtype", [mica.complex64, mica.complex128])
@pytest.mark.parametrize("shape", [(3, 70, 45), (8, 64, 32), (40, 9, 8), (5, 7, 6), (2, 3, 33, 10)])
def test_transforms_along_other_dimensions(shape, dtype):
    """Sequences that do not lie one after the other are copied in tiles first."""
    x = mica.randn(shape, dtype=dtype)
    there, tolerance = x.cuda(), 1e-4 if dtype == mica.complex64 else 1e-10
    for dim in range(len(shape)):
        for norm in ("backward", "ortho"):
            close(mica.fft.fft(there, dim=dim, norm=norm), mica.fft.fft(x, dim=dim, norm=norm), tolerance)
            close(mica.fft.ifft(there, dim=dim, norm=norm), mica.fft.ifft(x, dim=dim, norm=norm), tolerance)
        close(mica.fft.rfft(there.real, dim=dim), mica.fft.rfft(x.real, dim=dim), tolerance)
        close(mica.fft.irfft(there, dim=dim), mica.fft.irfft(x, dim=dim), tolerance)
        close(mica.fft.fft(there.transpose(0, 1), dim=dim), mica.fft.fft(x.transpose(0, 1), dim=dim), tolerance)
    close(mica.fft.fft2(there), mica.fft.fft2(x), tolerance)
    close(mica.fft.ifftn(there), mica.fft.ifftn(x), tolerance)


@pytest.mark.parametrize("dtype", [*DTYPES, mica.float64])
@pytest.mark.parametrize("name", ["i0e", "log_ndtr", "xlog1py"])
def test_special_functions(name, dtype):
    function, pair = getattr(mica.special, name), name == "xlog1py"
    tolerance = {mica.float32: 2e-6, mica.float64: 1e-13, mica.float16: 2e-3, mica.bfloat16: 1.6e-2}[dtype]
    x = mica.cat([mica.linspace(-30, 30, 4099), mica.tensor([0.0, 1e-6, -0.5, float("inf"), float("nan")])]).to(dtype)
    y = x.abs().flip(0) / 3
    for view in (lambda t: t, lambda t: t[1:], lambda t: t[::3], lambda t: t[:4096].view(64, 64).t()):
        a, b = view(x), view(y)
        want = (function(a.double(), b.double()) if pair else function(a.double())).to(dtype)
        got = function(view(x.cuda()), view(y.cuda())) if pair else function(view(x.cuda()))
        mica.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
    if pair:
        row = mica.linspace(0, 4, 64).to(dtype)
        got = function(x[:4096].view(64, 64).cuda(), row.cuda()).cpu()
        want = function(x[:4096].view(64, 64).double(), row.double()).to(dtype)
        mica.testing.assert_close(got, want, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
