"""Checkpointed functions give the same gradients, and keep nothing in between."""

import mica as torch
import pytest
from mica.autograd.graph import saved_tensors_hooks
from mica.utils.checkpoint import checkpoint, checkpoint_sequential


def block(x, w):
    return ((x * w).exp() * torch.rand(3)).sin()


def gradients(run):
    torch.manual_seed(1)
    x, w = torch.tensor([0.1, 0.2, 0.3], requires_grad=True), torch.ones(3, requires_grad=True)
    y = run(x, w)
    (y * y).sum().backward()
    return y.tolist(), x.grad.tolist(), w.grad.tolist()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_same_results_with_the_same_random_numbers(use_reentrant):
    plain = gradients(block)
    assert gradients(lambda x, w: checkpoint(block, x, w, use_reentrant=use_reentrant)) == plain


def test_the_inside_is_not_kept():
    kept = []
    x = torch.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = checkpoint(lambda v: v.exp().sin().exp(), x, use_reentrant=False)
    assert kept == []
    calls = []
    y = checkpoint(lambda v: calls.append(1) or v.exp().sin().exp(), x, use_reentrant=False)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert len(calls) == 3


def test_second_derivatives_and_nesting():
    x = torch.tensor(2.0, requires_grad=True)
    y = checkpoint(lambda v: checkpoint(lambda u: u**3, v, use_reentrant=False) * v, x, use_reentrant=False)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    assert g.item() == 32
    assert torch.autograd.grad(g, x)[0].item() == 48


def test_sequential():
    x = torch.tensor([0.5], requires_grad=True)
    chain = [torch.exp, torch.sin, torch.exp, torch.cos, torch.tanh]
    plain = x
    for function in chain:
        plain = function(plain)
    (expected,) = torch.autograd.grad(plain, x)
    checkpoint_sequential(chain, 2, x, use_reentrant=False).backward()
    assert x.grad.item() == expected.item()


def test_use_reentrant_should_be_given():
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(torch.sin, torch.ones(1, requires_grad=True))
