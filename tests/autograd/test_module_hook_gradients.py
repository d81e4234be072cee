"""What old backward hooks of modules see."""

import mica as torch
import pytest
from mica import nn
from mica.nn import functional as F


def _seen(function, *inputs):
    """Shapes of the gradients that a hook of register_backward_hook sees of a module."""

    class Wrapped(nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    seen = []

    def shapes(grads):
        return [None if grad is None else tuple(grad.shape) for grad in grads]

    module = Wrapped()
    module.register_backward_hook(lambda module, ins, outs: seen.append((shapes(ins), shapes(outs))))
    with pytest.warns(FutureWarning, match="non-full backward hook"):
        result = module(*inputs)
    result.sum().backward()
    return seen


def _ones(*shape):
    return torch.ones(*shape, requires_grad=True)


def test_gradients_have_the_inputs_shapes():
    assert _seen(torch.add, _ones(4, 3), _ones(3)) == [([(4, 3), (3,)], [(4, 3)])]
    assert _seen(torch.addmm, _ones(4), _ones(4, 3), _ones(3, 4)) == [([(4,), (4, 3), (3, 4)], [(4, 4)])]


def test_outputs_that_no_gradient_comes_to_are_not_shown():
    image = torch.rand(1, 1, 4, 4, requires_grad=True)
    assert _seen(lambda x: F.max_pool2d(x, 2), image) == [([(1, 1, 4, 4)], [(1, 1, 2, 2)])]


def test_a_hook_may_replace_what_it_sees():
    x, y = _ones(4, 3), _ones(3)
    total = x + y
    total.grad_fn.register_hook(lambda ins, outs: tuple(2 * grad for grad in ins))
    total.sum().backward()
    assert y.grad.tolist() == [8.0] * 3 and x.grad[0].tolist() == [2.0] * 3
