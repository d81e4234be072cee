"""A backward pass towards some inputs computes nothing for the others."""

import mica
import pytest
from mica.utils.flop_counter import FlopCounterMode


def flops(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def pair():
    return mica.randn(3, 4, requires_grad=True), mica.randn(4, 5, requires_grad=True)


def test_one_of_two_gradients_costs_one_product():
    x, w = pair()
    one_product = flops(lambda: x @ w)
    y = (x @ w).sum()
    assert flops(lambda: mica.autograd.grad(y, x, retain_graph=True)) == one_product
    assert flops(lambda: mica.autograd.grad(y, w, retain_graph=True)) == one_product
    assert flops(lambda: mica.autograd.grad(y, (x, w), retain_graph=True)) == 2 * one_product
    assert flops(lambda: y.backward(inputs=[x], retain_graph=True)) == one_product
    assert flops(y.backward) == 2 * one_product


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_gradients_are_whole(create_graph):
    x, w = pair()
    (gx,) = mica.autograd.grad((x @ w).tanh().sum(), x, create_graph=True)
    (gw,) = mica.autograd.grad(gx.square().sum(), w, create_graph=create_graph)

    def first(w):
        return mica.autograd.grad((x @ w).tanh().sum(), x, create_graph=True)[0].square().sum()

    h = 1e-3
    moved = mica.zeros_like(w)
    moved[1, 2] = h
    slope = (first(w + moved) - first(w - moved)) / (2 * h)
    assert abs(float(gw[1, 2]) - float(slope)) < 1e-2 * max(1.0, abs(float(slope)))


def test_a_pass_within_a_pass_asks_for_its_own():
    class Nested(mica.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, grad):
            x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            with mica.enable_grad():
                y = x @ w
            y.backward(grad)
            return x.grad, w.grad

    x, w = pair()
    (gw,) = mica.autograd.grad(Nested.apply(x, w).sum(), w)
    (expected,) = mica.autograd.grad((x @ w).sum(), w)
    assert mica.equal(gw, expected)


def test_a_changed_slice_asks_for_what_leads_to_the_input():
    x, w = mica.randn(4, requires_grad=True), mica.randn(2, requires_grad=True)
    y = x * 1
    y[1:3] *= w
    gx, gw = mica.autograd.grad(y.sum(), (x, w), retain_graph=True)
    assert mica.equal(mica.autograd.grad(y.sum(), x, retain_graph=True)[0], gx)
    assert mica.equal(mica.autograd.grad(y.sum(), w)[0], gw)
