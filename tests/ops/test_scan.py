"""Cumulative operations: dtypes, strides, NaN, in place, gradients with zeros."""

import math

import mica
import numpy as np
import pytest

rng = np.random.default_rng(3)

VIEWS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "every second": lambda a: a[..., ::2],
    "backwards": lambda a: a[::-1, ..., ::-1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_running_sums_and_products(view, dim, dtype):
    a = (
        rng.integers(-3, 4, (5, 40, 33)).astype(dtype)
        if dtype == "int32"
        else rng.standard_normal((5, 40, 33)).astype(dtype)
    )
    a = VIEWS[view](a)
    wide = {"float32": "float64", "int32": "int64", "complex64": "complex128"}.get(dtype, dtype)
    t = mica.from_numpy(a)
    assert t.cumsum(dim).dtype == (mica.int64 if dtype == "int32" else t.dtype)
    np.testing.assert_allclose(t.cumsum(dim).numpy(), a.cumsum(dim, dtype=wide), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(t.cumprod(dim).numpy(), a.cumprod(dim, dtype=wide), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dim", [0, 1])
def test_running_extrema(view, dim):
    a = VIEWS[view](rng.integers(0, 9, (30, 50)).astype("float32"))
    t = mica.from_numpy(a)
    for op, accumulate in (("cummax", np.maximum.accumulate), ("cummin", np.minimum.accumulate)):
        values, indices = getattr(t, op)(dim)
        assert np.array_equal(values.numpy(), accumulate(a, dim))
        assert np.array_equal(np.take_along_axis(a, indices.numpy(), dim), values.numpy())


def test_running_extrema_take_the_last_of_equals_and_keep_nan():
    nan = math.nan
    values, indices = mica.tensor([1.0, nan, 2.0, nan, 1.0]).cummax(0)
    assert indices.tolist() == [0, 1, 1, 3, 3] and values.isnan().tolist() == [False, True, True, True, True]
    assert mica.tensor([1, 1, 2, 2]).cummax(0).indices.tolist() == [0, 1, 2, 3]
    assert mica.tensor([1.0, 1.0, math.inf, 0.0, 0.0]).cummin(0).indices.tolist() == [0, 1, 1, 3, 4]


def test_every_prefix_of_floats_is_rounded_once():
    t = mica.full((1 << 16,), 0.1)
    exact = (np.arange(1, (1 << 16) + 1) * float(np.float32(0.1))).astype("float32")
    assert np.abs(t.cumsum(0).numpy() / exact - 1).max() < 1.3e-7
    half = mica.ones(4, 2048, dtype=mica.float16)
    assert half.cumsum(1)[:, -1].tolist() == [2048.0] * 4 and half.t().cumsum(0)[-1].tolist() == [2048.0] * 4


def test_logcumsumexp():
    a = rng.standard_normal((4, 30)) * 50
    t = mica.from_numpy(a)
    for dim in (0, 1):
        np.testing.assert_allclose(t.logcumsumexp(dim).numpy(), np.logaddexp.accumulate(a, dim), rtol=1e-12)
    inf = math.inf
    assert mica.tensor([-inf, -inf, 0.0, inf]).logcumsumexp(0).tolist() == [-inf, -inf, 0.0, inf]
    assert mica.tensor([-1000.0, 0.0]).logcumsumexp(0).tolist() == [-1000.0, 0.0]
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        mica.arange(3).logcumsumexp(0)


def test_dtypes_in_place_and_out():
    i = mica.tensor([[100, 100], [100, 100]], dtype=mica.uint8)
    assert i.cumsum(0).tolist() == [[100, 100], [200, 200]] and i.cumsum(0).dtype == mica.int64
    assert (
        i.clone().cumsum_(0).dtype == mica.uint8
        and mica.ones(3, dtype=mica.int32).cumsum(0, dtype=mica.float32).dtype == mica.float32
    )
    x = mica.ones(3, 4)
    assert x.cumsum_(1)[:, -1].tolist() == [4.0] * 3
    out = mica.zeros(4, 3).t()
    mica.cumsum(mica.ones(3, 4), 0, out=out)
    assert out[-1].tolist() == [3.0] * 4


def test_edges():
    assert mica.tensor(3.0).cumsum(0).item() == 3 and mica.tensor(3.0).cummax(0).indices.item() == 0
    assert mica.zeros(2, 0).cumsum(1).shape == (2, 0) and mica.zeros(0).cummin(0).values.shape == (0,)
    with pytest.raises(IndexError, match="Dimension out of range"):
        mica.ones(2).cumsum(1)


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients(dim):
    x = mica.randn(3, 5, dtype=mica.float64, requires_grad=True)
    assert mica.autograd.gradcheck(lambda t: t.cumsum(dim), (x,))
    assert mica.autograd.gradcheck(lambda t: t.logcumsumexp(dim), (x,))
    assert mica.autograd.gradgradcheck(lambda t: t.cumprod(dim), (x,))


def test_gradients_at_zeros_and_of_extrema():
    for zeros in ([2.0, 0.0, 3.0, 4.0], [0.0, 2.0, 0.0, 4.0]):
        t = mica.tensor(zeros, dtype=mica.float64, requires_grad=True)
        assert mica.autograd.gradcheck(lambda t: t.cumprod(0), (t,))
    t = mica.tensor([1.0, 3.0, 2.0, 3.0], requires_grad=True)
    t.cummax(0).values.sum().backward()
    assert t.grad.tolist() == [1, 2, 0, 1]


def test_second_derivative_of_logcumsumexp():
    x = mica.tensor([0.0, 0.5, -1.0, 0.0], dtype=mica.float64, requires_grad=True)
    weights = mica.tensor([0.3, -1.2, 0.7, 0.4], dtype=mica.float64)
    assert mica.autograd.gradgradcheck(lambda x: mica.logcumsumexp(x, 0) * weights, (x,))
