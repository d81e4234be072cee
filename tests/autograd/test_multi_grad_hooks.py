"""Hooks on the gradients of several tensors."""

import mica as torch
import pytest
from mica.autograd.graph import register_multi_grad_hook


def _ones(*shape):
    return torch.ones(*shape, requires_grad=True)


def test_any_passes_over_what_needs_no_gradient():
    x, fixed, calls = _ones(2), torch.ones(2), []
    handle = register_multi_grad_hook([fixed, x], calls.append, mode="any")
    (x * 3).sum().backward()
    assert [grad.tolist() for grad in calls] == [[3.0, 3.0]]
    handle.remove()
    (x * 3).sum().backward()
    assert len(calls) == 1
    register_multi_grad_hook([fixed], calls.append, mode="any").remove()


def test_all_wants_gradients_of_all():
    with pytest.raises(AssertionError, match="Expected gradient function to be set"):
        register_multi_grad_hook([_ones(2), torch.ones(2)], print)
    calls = []
    x, y = _ones(2), _ones(2)
    register_multi_grad_hook(iter([x, y]), calls.append)  # any iterable, read once
    (x * y).sum().backward()
    assert [[grad.tolist() for grad in grads] for grads in calls] == [[[1.0, 1.0], [1.0, 1.0]]]


def test_handles_of_several_hooks_have_a_state():
    handle = register_multi_grad_hook([_ones(2)], print)
    assert handle.__getstate__() == handle.handles
