"""Gradients that torch's own tests found wrong here; the values are torch 2.13's."""

import mica
import pytest

NO_GPU = pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, NO_GPU])]


@pytest.mark.parametrize("device", DEVICES)
def test_atan2_at_the_origin(device):
    """Both derivatives are 0 where the sum of squares is, be it that the squares are too small."""
    y = mica.tensor([0.0, 1.0, 0.0, -0.0, 1e-200], dtype=mica.float64, device=device, requires_grad=True)
    x = mica.tensor([0.0, 0.0, -1.0, -0.0, 1e-200], dtype=mica.float64, device=device, requires_grad=True)
    mica.atan2(y, x).sum().backward()
    assert y.grad.tolist() == [0, 0, -1, 0, 0] and x.grad.tolist() == [0, -1, 0, 0, 0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("size", "index_size", "places", "dense"),
    [((), (), [], 1.0), ((), (1,), [], 1.0), ((3,), (), [[2]], [0, 0, 1])],
)
def test_sparse_gradient_of_gather_with_scalars(device, size, index_size, places, dense):
    x = mica.ones(size, dtype=mica.float64, device=device, requires_grad=True)
    index = mica.full(index_size, 2 if size else 0, device=device)
    mica.gather(x, 0, index, sparse_grad=True).sum().backward()
    assert x.grad.is_sparse and x.grad._indices().shape == (len(size), 1)
    assert x.grad._indices().tolist() == places and x.grad.to_dense().tolist() == dense


class Fixed(mica.autograd.Function):
    """The identity, whose gradient is given."""

    @staticmethod
    def forward(ctx, x, gradient):
        ctx.gradient = gradient
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.gradient, None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [mica.float64, mica.complex128])
def test_sparse_and_dense_gradients_in_any_order(device, dtype):
    dense = mica.arange(6.0, device=device).reshape(3, 2).to(dtype)
    sparse = mica.sparse_coo_tensor([[0, 2]], [[1, 2], [3, 4]], (3, 2), dtype=dtype, device=device)
    expected = (dense + sparse + sparse).tolist()
    for order in ((sparse, dense, sparse), (dense, sparse, sparse), (sparse, sparse, dense)):
        x = mica.ones(3, 2, dtype=dtype, device=device, requires_grad=True)
        y = x * 1
        sum(Fixed.apply(y, gradient) for gradient in order).sum().abs().backward()
        assert x.grad.tolist() == expected
        x = mica.ones(3, 2, dtype=dtype, device=device, requires_grad=True)
        sum(Fixed.apply(x, gradient) for gradient in order).sum().abs().backward()
        assert x.grad.tolist() == expected
