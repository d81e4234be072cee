"""Softmax: values, 16-bit floats, infinities, gradients, messages."""

import math

import mica
import mica.nn.functional as F
import numpy as np
import pytest

rng = np.random.default_rng(4)


def softmax(a, dim):
    e = np.exp(a - a.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


@pytest.mark.parametrize("shape", [(3, 5), (4, 1000), (130, 70), (2, 3, 1100), (2, 1100, 3)], ids=str)
def test_softmax_along_every_dimension(shape):
    a = rng.standard_normal(shape) * 5
    for dtype, rtol in (("float32", 3e-6), ("float64", 1e-13)):
        t = mica.from_numpy(a.astype(dtype))
        for dim in range(len(shape)):
            expected = softmax(a.astype(dtype).astype("float64"), dim)
            np.testing.assert_allclose(t.softmax(dim).numpy(), expected, rtol=rtol)
            np.testing.assert_allclose(
                t.log_softmax(dim).numpy(), np.log(expected), rtol=rtol, atol=1e-6 if dtype == "float32" else 1e-13
            )


@pytest.mark.parametrize("dtype, rtol", [("float16", 1e-3), ("bfloat16", 8e-3)])
def test_sixteen_bit_floats_are_rounded_once(dtype, rtol):
    t = mica.randn(9, 130).to(getattr(mica, dtype))
    for dim in (0, 1):
        for op in ("softmax", "log_softmax"):
            ours, wide = getattr(t, op)(dim), getattr(t.float(), op)(dim)
            assert ours.dtype == t.dtype and mica.allclose(ours.float(), wide, rtol=rtol, atol=1e-6)
    assert t.softmax(1, dtype=mica.float32).dtype == mica.float32


def test_infinities_and_nan():
    inf, nan = math.inf, math.nan
    for op in (mica.softmax, mica.log_softmax):
        for row in ([-inf, -inf], [inf, 1.0], [nan, 1.0]):
            assert op(mica.tensor(row), 0).isnan().tolist() == [True, True]
            assert op(mica.tensor([row, row]).t(), 0).isnan().all().item()
    assert mica.tensor([-inf, 0.0]).softmax(0).tolist() == [0.0, 1.0]
    assert mica.tensor([1000.0, 1000.0]).softmax(0).tolist() == [0.5, 0.5]


def test_strides_empty_zero_dim_and_out():
    t = mica.randn(6, 8)
    assert mica.allclose(t.t().softmax(0), t.softmax(1).t())
    assert mica.allclose(t[:, ::2].softmax(1), t[:, ::2].clone().softmax(1))
    assert mica.tensor(3.0).softmax(0).item() == 1 and mica.zeros(2, 0).softmax(1).shape == (2, 0)
    out = mica.zeros(8, 6).t()
    mica.softmax(t, 1, out=out)
    assert mica.equal(out, t.softmax(1))


def test_functional_forms():
    t = mica.randn(2, 3)
    assert mica.equal(F.softmax(t, dim=1), t.softmax(1)) and mica.equal(F.softmin(t, 1), (-t).softmax(1))
    assert F.softmax(t, 1, _stacklevel=5, dtype=mica.float64).dtype == mica.float64
    with pytest.warns(UserWarning, match="Implicit dimension choice for log_softmax"):
        assert mica.equal(F.log_softmax(t), t.log_softmax(1))
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        mica.arange(3).softmax(0)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_gradients(op, dim):
    x = mica.randn(3, 4, 5, dtype=mica.float64, requires_grad=True)
    f = lambda t: getattr(t, op)(dim)  # noqa: E731
    assert mica.autograd.gradcheck(f, (x,)) and mica.autograd.gradgradcheck(f, (x,))
