"""Cycles through autograd's C++ objects are found by Python's collector, and what is taken off is let go of."""

import gc
import weakref

import mica
import pytest
from mica import nn


class Thing:
    pass


def alive(make, count=3):
    """How many of the things given to `make` the collector leaves."""
    things = []
    for _ in range(count):
        thing = Thing()
        things.append(weakref.ref(thing))
        make(thing)
        del thing
    gc.collect()
    return sum(r() is not None for r in things)


def leaf():
    return mica.ones(3, requires_grad=True)


def hook_of_a_leaf(thing):
    t = leaf()
    t.register_hook(lambda grad, t=t, thing=thing: None)


def hook_of_a_result(thing):
    y = leaf() * 2
    y.register_hook(lambda grad, y=y, thing=thing: None)


def hook_that_has_run(thing):
    y = leaf() * 2
    y.register_hook(lambda grad, y=y, thing=thing: None)
    y.sum().backward()


def hook_after_accumulation(thing):
    t = leaf()
    t.register_post_accumulate_grad_hook(lambda t, self=t, thing=thing: None)
    t.sum().backward()


def hook_of_a_parameter(thing):
    module = nn.Linear(2, 2)
    module.thing = thing
    module.weight.register_hook(lambda grad, module=module: None)
    module(mica.ones(1, 2)).sum().backward()


def method_as_hook(thing):
    class Clip(nn.Linear):
        def clip(self, grad):
            return grad.clamp(-1, 1)

    module = Clip(2, 2)
    module.thing = thing
    module.weight.register_hook(module.clip)


def context_of_a_function(thing):
    class Double(mica.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.result = 2 * x
            ctx.thing = thing
            return ctx.result

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    Double.apply(leaf()).sum().backward()


CYCLES = [
    hook_of_a_leaf,
    hook_of_a_result,
    hook_that_has_run,
    hook_after_accumulation,
    hook_of_a_parameter,
    method_as_hook,
    context_of_a_function,
]


@pytest.mark.parametrize("make", CYCLES, ids=lambda f: f.__name__)
def test_cycles_are_collected(make):
    assert alive(make) == 0


def test_a_hook_lives_as_long_as_its_tensor_in_the_graph():
    calls = []
    y = leaf() * 2
    y.register_hook(lambda grad, y=y: calls.append(grad.tolist()))
    total = (y * 3).sum()
    del y
    gc.collect()
    total.backward()
    assert calls == [[3.0] * 3]


def test_a_hook_that_was_taken_off_is_let_go_of():
    t, y = leaf(), leaf() * 2

    def register():
        function = lambda *grads: None  # noqa: E731
        handles = [
            t.register_hook(function),
            t.register_post_accumulate_grad_hook(function),
            y.register_hook(function),
            y.grad_fn.register_hook(function),
            y.grad_fn.register_prehook(function),
        ]
        return weakref.ref(function), handles

    function, handles = register()
    assert function() is not None
    for handle in handles:
        handle.remove()
    assert function() is None
    (t.sum() + y.sum()).backward()
