"""Settings that decide how CUDA computes: how exact float32 is, and whether convolutions repeat their results."""

import mica
import pytest

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not mica.cuda.is_available(), reason="no GPU")]


def product_error():
    """The distance of a float32 product from the same in float64, relative to its size."""
    mica.manual_seed(0)
    a, b = mica.randn(256, 256, device="cuda"), mica.randn(256, 256, device="cuda")
    exact = a.double() @ b.double()
    return ((a @ b).double() - exact).abs().max().item() / exact.abs().max().item()


# A float32 has 24 bits, a TF32 11: sums of 256 products differ in the seventh digit or in the fourth.
def test_words_for_products_round_their_inputs():
    assert product_error() < 2e-6
    for word in ("high", "medium"):
        mica.set_float32_matmul_precision(word)
        try:
            assert 2e-5 < product_error() < 2e-3
        finally:
            mica.set_float32_matmul_precision("highest")
        assert product_error() < 2e-6
    for word, rounded in (("tf32", True), ("ieee", False)):
        mica.backends.cuda.matmul.fp32_precision = word
        assert (product_error() > 2e-5) == rounded
    with mica.backends.cudnn.flags(enabled=True, fp32_precision="tf32"):  # the products have a setting of their own
        assert product_error() < 2e-6


def gradients(dtype):
    mica.manual_seed(0)
    x = mica.randn(8, 32, 28, 28, device="cuda", dtype=dtype, requires_grad=True)
    w = mica.randn(64, 32, 3, 3, device="cuda", dtype=dtype, requires_grad=True)
    mica.nn.functional.conv2d(x, w, padding=1, stride=2).square().sum().backward()
    return x.grad, w.grad


@pytest.mark.parametrize("dtype", [mica.float32, mica.float16, mica.float64], ids=str)
@pytest.mark.parametrize("by", ["cudnn.deterministic", "use_deterministic_algorithms"])
def test_convolutions_repeat_their_results_where_asked(by, dtype):
    expected = gradients(dtype)
    if by == "cudnn.deterministic":
        mica.backends.cudnn.deterministic = True
    else:
        mica.use_deterministic_algorithms(True)
    try:
        first = gradients(dtype)
        for _ in range(5):
            for a, b in zip(gradients(dtype), first, strict=True):
                assert mica.equal(a, b)
    finally:
        mica.backends.cudnn.deterministic = False
        mica.use_deterministic_algorithms(False)
    tolerance = {mica.float32: 5e-3, mica.float16: 2e-2, mica.float64: 1e-10}[dtype]  # TF32 is allowed in float32
    for a, b in zip(first, expected, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max()
