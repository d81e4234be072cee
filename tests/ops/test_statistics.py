"""Variances, norms, covariances, differences and integrals against NumPy."""

import math

import mica
import numpy as np
import pytest

rng = np.random.default_rng(2)
random, as_mica = rng.standard_normal, mica.from_numpy


def assert_close(result, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(result.numpy(), expected, rtol=rtol, atol=atol)


def test_var_with_corrections():
    a = random((5, 8))
    t = as_mica(a)
    assert t.var().item() == pytest.approx(a.var(ddof=1)) and t.var(False).item() == pytest.approx(a.var())
    assert_close(t.std(1, False), a.std(1))
    assert_close(t.var(0, correction=2), a.var(0, ddof=2))
    assert_close(t.std((0, 1), keepdim=True), a.std(ddof=1).reshape(1, 1))
    var, mean = mica.var_mean(t, 1)
    assert_close(var, a.var(1, ddof=1))
    assert_close(mean, a.mean(1))
    std, mean = mica.std_mean(t)
    assert std.item() == pytest.approx(a.std(ddof=1)) and mean.item() == pytest.approx(a.mean())
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert mica.ones(1).var().isnan().item()
    far = mica.full((1000,), 1e6) + mica.arange(1000) % 2
    assert far.var().item() == pytest.approx(0.25025, rel=1e-5)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, 4.5, math.inf, -math.inf, -1])
def test_norms(p):
    a = random((6, 40))
    t = as_mica(a)
    for dim in (0, 1):
        expected = np.linalg.norm(a, p, dim)
        assert_close(t.norm(p, dim), expected, rtol=1e-10)
    assert t.norm(p).item() == pytest.approx(np.linalg.norm(a.ravel(), p))
    c = random((6, 40)) + 1j * random((6, 40))
    assert_close(as_mica(c).norm(p, 1), np.linalg.norm(np.abs(c), p, 1), rtol=1e-10)


def test_norm_by_name_and_dtype():
    t = mica.tensor([[3.0, 4.0], [6.0, 8.0]])
    assert t.norm("fro", 1).tolist() == t.norm(dim=1).tolist() == mica.norm(t, p=None, dim=1).tolist() == [5.0, 10.0]
    assert t.norm(dtype=mica.float64).dtype == mica.float64
    assert mica.tensor([1e30, 1e30]).norm().item() == pytest.approx(math.sqrt(2) * 1e30)
    with pytest.raises(RuntimeError, match="Expected a floating point or complex tensor as input. Got Long"):
        mica.arange(3).norm()
    with pytest.raises(RuntimeError, match="dtype should be real for real inputs"):
        t.norm(2, dtype=mica.complex64)
    with pytest.raises(RuntimeError, match="Order foo not supported"):
        t.norm("foo")
    assert t.norm("nuc").item() == pytest.approx(np.linalg.norm(t.numpy(), "nuc"))
    assert_close(mica.stack([t, t]).norm("nuc", (1, 2)), [t.norm("nuc").item()] * 2)
    with pytest.raises(RuntimeError, match="linalg.matrix_norm: dim must be a 2-tuple"):
        mica.ones(2, 2, 2).norm("nuc")


def test_renorm_and_normalize():
    t = mica.tensor([[3.0, 4.0], [0.3, 0.4]])
    assert_close(t.renorm(2, 0, 1.0), [[0.6, 0.8], [0.3, 0.4]])
    assert_close(t.renorm_(2, 0, 1.0), [[0.6, 0.8], [0.3, 0.4]])
    assert_close(mica.nn.functional.normalize(mica.tensor([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0.0, 0.0]])
    with pytest.raises(RuntimeError, match="renorm: input needs at least 2 dimensions"):
        mica.ones(3).renorm(2, 0, 1.0)


def test_equal_and_allclose():
    t = mica.randn(30, 50)
    assert mica.equal(t, t.clone()) and mica.equal(t.t(), t.clone().t()) and not mica.equal(t, t.t())
    other = t.clone()
    other[29, 49] += 1
    assert not t.equal(other) and not t[:, ::2].equal(other[:, 1::2]) and t[:29].equal(other[:29])
    assert not mica.tensor([math.nan]).equal(mica.tensor([math.nan])) and mica.tensor([0.0]).equal(mica.tensor([-0.0]))
    assert mica.tensor([1, 2]).equal(mica.tensor([1.0, 2.0])) and mica.zeros(0).equal(mica.zeros(0))
    assert mica.allclose(t, t * 1.000001) and not mica.allclose(t, t + 1e-2)


def test_cov_and_corrcoef():
    a = random((3, 9))
    t = as_mica(a)
    assert_close(t.cov(), np.cov(a))
    assert_close(t.corrcoef(), np.corrcoef(a))
    f, w = np.arange(1, 10), rng.random(9)
    assert_close(t.cov(fweights=as_mica(f), aweights=as_mica(w)), np.cov(a, fweights=f, aweights=w))
    assert t[0].cov().item() == pytest.approx(np.cov(a[0]))
    with pytest.raises(RuntimeError, match="expected fweights to have integral dtype"):
        t.cov(fweights=mica.ones(9))


def test_differences_and_integrals():
    a = random((4, 7))
    t = as_mica(a)
    assert_close(t.diff(), np.diff(a))
    assert_close(t.diff(2, 0), np.diff(a, 2, 0))
    assert t.diff(9).shape == (4, 0) and mica.tensor([True, False, False]).diff().tolist() == [True, False]
    x = np.cumsum(rng.random(7) + 0.1)
    for edge_order in (1, 2):
        ours = mica.gradient(t, spacing=(as_mica(x),), dim=1, edge_order=edge_order)[0]
        assert_close(ours, np.gradient(a, x, axis=1, edge_order=edge_order), rtol=1e-9)
        for ours, theirs in zip(
            mica.gradient(t, spacing=0.5, edge_order=edge_order),
            np.gradient(a, 0.5, edge_order=edge_order),
            strict=True,
        ):
            assert_close(ours, theirs, rtol=1e-9)
    assert_close(mica.trapezoid(t, as_mica(x)), np.trapezoid(a, x) if hasattr(np, "trapezoid") else np.trapz(a, x))
    assert_close(mica.cumulative_trapezoid(t, dx=2)[:, -1], mica.trapezoid(t, dx=2).numpy())
    with pytest.raises(RuntimeError, match="There must be one `x` value for each sample point"):
        mica.trapezoid(t, mica.ones(3))
