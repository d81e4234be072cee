"""torch.compile(backend=function) of functions that compute gradients by themselves."""

import mica as torch
import pytest
from mica import func


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


weight, matrix = torch.randn(4), torch.randn(2, 4)


def _energy(x):
    return (x.sin() * weight).sum()


TRANSFORMS = {
    "grad": func.grad(_energy),
    "grad_and_value": func.grad_and_value(_energy),
    "hessian": func.hessian(_energy),
    "jacrev": func.jacrev(torch.sin),
    "jacfwd": func.jacfwd(torch.sin),
    "jvp": lambda x: func.jvp(_energy, (x,), (weight,)),
    "vjp": lambda x: func.vjp(torch.sin, x)[1](weight),
    "linearize": lambda x: func.linearize(torch.sin, x)[1](weight),
    "each": lambda x: torch.vmap(func.grad(_energy))(x.expand(3, 4)),
    "shared": lambda x: torch.vmap(func.grad(lambda m, y: (m @ y).exp().sum()), (None, 0))(matrix, x.expand(3, 4)),
    "layer": lambda x: torch.vmap(func.grad(lambda m, y: torch.nn.functional.linear(y, m).sum()), (None, 0))(
        matrix, x.expand(3, 4)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_give_what_they_give_without_a_capture(name):
    x = torch.randn(4)
    wanted, given = TRANSFORMS[name](x), torch.compile(TRANSFORMS[name], backend="eager")(x)
    pairs = list(zip(torch.utils._pytree.tree_leaves(wanted), torch.utils._pytree.tree_leaves(given), strict=True))
    assert pairs
    for a, b in pairs:
        assert torch.equal(a, b) and a.requires_grad == b.requires_grad


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() + torch.zeros(4)


def _accumulated(x):
    y = Sine.apply(x * weight)
    y.register_hook(lambda grad: grad * 2 + torch.ones(4))
    y.square().sum().backward()
    return x.grad * 3


def _asked(x):
    return torch.autograd.grad(Sine.apply(x * weight).square().sum(), x, create_graph=True)[0]


@pytest.mark.parametrize("function", [_accumulated, _asked])
def test_custom_functions_and_hooks_of_a_backward_pass_get_real_tensors(function):
    x = torch.randn(4, requires_grad=True)
    wanted, x.grad = function(x), None
    given = torch.compile(function, backend="eager")(x)
    assert torch.equal(wanted, given) and wanted.requires_grad == given.requires_grad
