"""layer_norm and rms_norm: values, mixed dtypes, gradients, messages."""

import mica
import mica.nn.functional as F
import numpy as np
import pytest

rng = np.random.default_rng(4)


def layer_norm(a, axes, eps=1e-5):
    return (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize("shape, count", [((6, 10), 1), ((2, 3, 1000), 1), ((4, 5, 7), 2), ((3, 1), 1)], ids=str)
def test_layer_norm(shape, count):
    a = rng.standard_normal(shape) * 3 + 5
    axes, normalized = tuple(range(-count, 0)), shape[-count:]
    w, b = rng.standard_normal(normalized), rng.standard_normal(normalized)
    for dtype, rtol in (("float32", 2e-5), ("float64", 1e-12)):
        x, wt, bt = (mica.from_numpy(v.astype(dtype)) for v in (a, w, b))
        np.testing.assert_allclose(F.layer_norm(x, normalized).numpy(), layer_norm(a, axes), rtol=rtol, atol=rtol)
        np.testing.assert_allclose(
            F.layer_norm(x, normalized, wt, bt).numpy(), layer_norm(a, axes) * w + b, rtol=rtol, atol=rtol
        )
        np.testing.assert_allclose(
            F.layer_norm(x, normalized, None, bt).numpy(), layer_norm(a, axes) + b, rtol=rtol, atol=rtol
        )
        rms = a / np.sqrt((a**2).mean(axes, keepdims=True) + 1e-5)
        np.testing.assert_allclose(F.rms_norm(x, normalized, wt, 1e-5).numpy(), rms * w, rtol=rtol, atol=rtol)


def test_layer_norm_of_a_distant_mean_keeps_its_digits():
    x = mica.tensor([[1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3]])
    np.testing.assert_allclose(F.layer_norm(x, (4,)).numpy(), layer_norm(x.double().numpy(), -1), rtol=1e-5)


def test_mixed_dtypes():
    x = mica.randn(4, 32).bfloat16()
    out, mean, rstd = mica.native_layer_norm(x, (32,), mica.ones(32), mica.zeros(32), 1e-5)
    assert out.dtype == mica.bfloat16 and mean.dtype == rstd.dtype == mica.float32 and mean.shape == (4, 1)
    assert mica.native_layer_norm(x, (32,), None, None, 1e-5)[1].dtype == mica.bfloat16
    assert mica.allclose(out.float(), F.layer_norm(x.float(), (32,)), rtol=1e-2, atol=1e-2)
    with pytest.raises(RuntimeError, match=r"mixed dtype \(CPU\): all inputs must share same datatype"):
        F.layer_norm(x.double(), (32,), mica.ones(32))


def test_normalized_shape_is_checked():
    x = mica.ones(2, 3)
    with pytest.raises(
        RuntimeError,
        match=r"Given normalized_shape=\[2\], expected input with shape \[\*, 2\], but got input of size\[2, 3\]",
    ):
        F.layer_norm(x, (2,))
    with pytest.raises(RuntimeError, match="Expected normalized_shape to be at least 1-dimensional"):
        F.layer_norm(x, ())
    with pytest.raises(RuntimeError, match="Expected weight to be of same shape as normalized_shape"):
        F.layer_norm(x, (3,), mica.ones(2))


@pytest.mark.parametrize("parameters", [0, 1, 2])
def test_normalisation_gradients(parameters):
    x = mica.randn(3, 4, 5, dtype=mica.float64, requires_grad=True)
    extra = [mica.randn(5, dtype=mica.float64, requires_grad=True) for _ in range(parameters)]
    f = lambda x, *p: F.layer_norm(x, (5,), *p)  # noqa: E731
    assert mica.autograd.gradcheck(f, (x, *extra)) and mica.autograd.gradgradcheck(f, (x, *extra))
    if parameters < 2:
        f = lambda x, *p: F.rms_norm(x, (5,), *p)  # noqa: E731
        assert mica.autograd.gradcheck(f, (x, *extra)) and mica.autograd.gradgradcheck(f, (x, *extra))


def test_parameter_gradients_over_many_rows():
    x = mica.randn(2000, 64)
    w, b = mica.randn(64, requires_grad=True), mica.randn(64, requires_grad=True)
    g = mica.randn(2000, 64)
    F.layer_norm(x, (64,), w, b).backward(g)
    normal = layer_norm(x.double().numpy(), -1)
    np.testing.assert_allclose(w.grad.numpy(), (g.double().numpy() * normal).sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.grad.numpy(), g.double().numpy().sum(0), rtol=1e-5, atol=1e-5)


def test_gradients_over_no_rows_are_zero():
    x, w, b = (mica.ones(*s, requires_grad=True) for s in ((0, 4), (4,), (4,)))
    F.layer_norm(x, (4,), w, b).sum().backward()
    assert w.grad.tolist() == b.grad.tolist() == [0.0] * 4
    v = mica.ones(4, requires_grad=True)
    F.rms_norm(x, (4,), v).sum().backward()
    assert v.grad.tolist() == [0.0] * 4
