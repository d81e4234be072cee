"""Quantized tensors on CUDA against the CPU: what torch has there."""

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


def assert_same(there, here):
    assert there.dtype == here.dtype and there.device.type == "cuda" and there.is_quantized == here.is_quantized
    if here.is_quantized:
        assert there.qscheme() == here.qscheme()
        there, here = there.int_repr(), here.int_repr()
    assert there.cpu().tolist() == here.tolist()


@pytest.mark.parametrize("dtype", [mica.quint8, mica.qint8, mica.qint32], ids=str)
def test_per_tensor(dtype):
    for x in (
        mica.linspace(-40, 40, 1001),
        mica.tensor([float("nan"), float("inf"), -float("inf"), 1e30]),
        mica.ones(0),
    ):
        here = mica.quantize_per_tensor(x, 0.1, 3, dtype)
        there = mica.quantize_per_tensor(x.cuda(), 0.1, 3, dtype)
        assert_same(there, here)
        assert_same(there.dequantize(), here.dequantize())
        assert there.q_scale() == here.q_scale() and there.q_zero_point() == here.q_zero_point()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(axis):
    mica.manual_seed(0)
    x = mica.randn(4, 5, 6)
    scales, zeros = mica.rand(x.shape[axis]) / 10 + 0.01, mica.randint(0, 10, (x.shape[axis],))
    here = mica.quantize_per_channel(x, scales, zeros, axis, mica.quint8)
    there = mica.quantize_per_channel(x.cuda(), scales.cuda(), zeros.cuda(), axis, mica.quint8)
    assert_same(there, here)
    assert_same(there.dequantize(), here.dequantize())
    assert there.q_per_channel_scales().cpu().tolist() == here.q_per_channel_scales().tolist()


def test_fake_quantize():
    mica.manual_seed(0)
    x = mica.randn(7, 9)
    for call in (
        lambda t: mica.fake_quantize_per_tensor_affine(t, 0.05, 7, 0, 63),
        lambda t: mica.fake_quantize_per_channel_affine(
            t, mica.linspace(0.02, 0.2, 7, device=t.device), mica.arange(7, dtype=mica.int32, device=t.device), 0, 0, 63
        ),
    ):
        results = []
        for device in ("cuda", "cpu"):
            leaf = x.detach().to(device).requires_grad_()
            y = call(leaf)
            y.square().sum().backward()
            results.append((y.detach(), leaf.grad))
        for there, here in zip(*results, strict=True):
            assert_same(there, here)


def test_products_of_bytes():
    mica.manual_seed(0)
    for m, n, k in ((17, 8, 16), (33, 40, 24), (64, 128, 256)):
        a = mica.randint(-128, 128, (m, k), dtype=mica.int8)
        b = mica.randint(-128, 128, (k, n), dtype=mica.int8)
        assert_same(mica._int_mm(a.cuda(), b.cuda()), mica._int_mm(a, b))
