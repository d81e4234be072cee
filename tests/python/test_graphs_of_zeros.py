"""Gradients in graphs hold for other numbers than those of the example: for zeros, and for matrices that are singular."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function
from mica.fx.experimental.proxy_tensor import make_fx

FUNCTIONS = {
    "prod": lambda x: x.prod(),
    "prod of rows": lambda x: x.prod(1),
    "prod kept": lambda x: x.prod(0, keepdim=True),
    "cumprod": lambda x: x.cumprod(1),
    "cumprod of columns": lambda x: x.cumprod(0) * torch.arange(1.0, 4.0),
    "det": torch.linalg.det,
}
EXAMPLE = torch.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, -1.0], [2.0, 7.0, 6.0]])
OTHERS = [
    EXAMPLE,
    torch.tensor([[0.0, 2.0, 4.0], [3.0, 0.0, -1.0], [0.0, 0.0, 6.0]]),
    torch.tensor([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [3.0, 1.0, 0.0]]),
    torch.zeros(3, 3),
]


def _gradient(function, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_zeros(name):
    function = FUNCTIONS[name]
    compiled = aot_function(function, lambda graph, inputs: graph)
    _gradient(compiled, EXAMPLE)  # the graphs are those of an example without zeros
    traced = make_fx(lambda x: _gradient(function, x))(EXAMPLE)
    for x in OTHERS:
        wanted = _gradient(function, x)
        assert _gradient(compiled, x).allclose(wanted, atol=1e-5) and traced(x).allclose(wanted, atol=1e-5)


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_long_products(dim):
    def function(x):
        return x.cumprod(dim) * torch.linspace(-1, 1, 100).view(-1, 1) + x.cumprod(dim).square()

    x = torch.linspace(0.97, 1.03, 300).view(100, 3)
    traced = make_fx(lambda x: _gradient(function, x))(x)
    assert len(traced.graph.nodes) < 100
    generator = torch.Generator().manual_seed(0)
    for count in (0, 1, 2, 5):
        other = x.clone()
        other[torch.randint(100, (count,), generator=generator), torch.randint(3, (count,), generator=generator)] = 0
        assert traced(other).allclose(_gradient(function, other), atol=1e-4)


def test_second_derivatives_of_long_products_at_zeros():
    weights, direction = torch.linspace(-1, 1, 100, dtype=torch.float64), torch.linspace(0.5, 2, 100).double()

    def second(x, weights, direction):
        x = x.clone().requires_grad_()
        (first,) = torch.autograd.grad((x.cumprod(0) * weights).sum(), x, create_graph=True)
        return torch.autograd.grad((first * direction).sum(), x)[0]

    x = torch.linspace(0.95, 1.05, 100, dtype=torch.float64)
    traced = make_fx(second)(x, weights, direction)
    assert len(traced.graph.nodes) < 400
    for zeros in ([], [0], [1], [50], [3, 4], [0, 99], [1, 50, 99]):
        other = x.clone()
        other[zeros] = 0
        assert traced(other, weights, direction).allclose(second(other, weights, direction), rtol=1e-9)


def test_products_of_open_sizes():
    def gradient(x):
        return torch.autograd.grad(x.cumprod(0).sum(), x)[0]

    traced = make_fx(gradient, tracing_mode="symbolic")(torch.ones(4, 2, requires_grad=True))
    for x in (torch.tensor([[2.0], [0.0], [3.0]]), torch.randn(7, 5), torch.zeros(2, 3)):
        if x.shape[1] > 1:
            assert traced(x.requires_grad_()).allclose(gradient(x), atol=1e-5)
