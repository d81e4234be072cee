"""Complex numbers where CUDA's libraries have none, and convolutions that cuDNN does not take as they are."""

import math

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

F = mica.nn.functional
CONVOLUTIONS = {
    "conv1d": ((2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    "conv2d": ((2, 3, 8, 7), (5, 3, 3, 2), {"stride": 2, "padding": 1}),
    "conv3d": ((1, 2, 5, 4, 6), (3, 2, 2, 2, 3), {"dilation": 1}),
    "conv_transpose1d": ((2, 4, 5), (4, 3, 3), {"stride": 2, "groups": 2}),
    "conv_transpose2d": ((2, 3, 4, 5), (3, 2, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "conv_transpose3d": ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), {"padding": 1}),
}


def compare(function, *inputs, tolerance=1e-9):
    """Results and gradients on the GPU and on the CPU."""

    def run(move):
        leaves = [move(x.detach()).requires_grad_(True) for x in inputs]
        result = function(*leaves)
        loss = (result.abs() if result.is_complex() else result).square().sum()
        return [result, *mica.autograd.grad(loss, leaves)]

    for there, here in zip(run(lambda x: x.cuda()), run(lambda x: x.clone()), strict=True):
        mica.testing.assert_close(there.detach().cpu(), here.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [mica.complex64, mica.complex128], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, dtype):
    shape, weight, options = CONVOLUTIONS[name]
    made = weight[1] * options.get("groups", 1) if "transpose" in name else weight[0]
    x, w, b = (mica.randn(s, dtype=dtype) for s in (shape, weight, (made,)))
    mica.backends.cudnn.allow_tf32 = False
    try:
        tolerance = 1e-9 if dtype == mica.complex128 else 1e-3
        compare(lambda x, w, b: getattr(F, name)(x, w, b, **options), x, w, b, tolerance=tolerance)
    finally:
        mica.backends.cudnn.allow_tf32 = True


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("padding", [(1, 2), (2, 0)])
def test_more_padding_behind_a_transposed_convolution_than_its_stride(padding, channels_last):
    x, w = mica.randn(2, 3, 4, 5, dtype=mica.float64), mica.randn(3, 4, 2, 3, dtype=mica.float64)
    if channels_last:
        x = x.contiguous(memory_format=mica.channels_last)
    compare(lambda x, w: F.conv_transpose2d(x, w, dilation=3, output_padding=padding), x, w)
    x, w = mica.randn(1, 2, 3, 2, 4, dtype=mica.float64), mica.randn(2, 2, 2, 1, 2, dtype=mica.float64)
    compare(lambda x, w: F.conv_transpose3d(x, w, stride=(1, 2, 1), dilation=3, output_padding=(2, 1, 1)), x, w)


@pytest.mark.parametrize("dtype", [mica.complex64, mica.complex128], ids=str)
def test_silu(dtype):
    compare(F.silu, mica.randn(5, 7, dtype=dtype), tolerance=1e-5 if dtype == mica.complex64 else 1e-12)


@pytest.mark.parametrize("dtype", [mica.complex64, mica.complex128], ids=str)
def test_random_numbers(dtype):
    """Complex numbers are the real ones two by two; normal ones share their variance."""
    real = mica.float32 if dtype == mica.complex64 else mica.float64
    mica.manual_seed(3)
    z = mica.view_as_real(mica.randn(1001, dtype=dtype, device="cuda"))
    mica.manual_seed(3)
    mica.testing.assert_close(z, mica.randn(1001, 2, dtype=real, device="cuda") / math.sqrt(2), rtol=1e-6, atol=1e-6)
    mica.manual_seed(3)
    z = mica.view_as_real(mica.rand(1001, dtype=dtype, device="cuda"))
    mica.manual_seed(3)
    assert mica.equal(z, mica.rand(1001, 2, dtype=real, device="cuda"))
    shifted = mica.empty(100_000, dtype=dtype, device="cuda").normal_(3.0, 2.0)
    for part in (shifted.real, shifted.imag):
        assert abs(part.mean().item() - 3) < 0.05 and abs(part.var().item() - 2) < 0.1
