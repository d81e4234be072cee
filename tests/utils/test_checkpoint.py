"""Checkpointed functions give the same gradients, and keep nothing in between."""

import contextlib
import gc
import weakref

import mica as torch
import pytest
from mica.autograd.graph import saved_tensors_hooks
from mica.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop


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


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_the_second_run_has_the_autocast_of_the_first(enabled, use_reentrant):
    dtypes = []

    def product(x, y):
        z = x @ y
        dtypes.append(z.dtype)
        return z.sin()

    x, y = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
        z = checkpoint(product, x, y, use_reentrant=use_reentrant)
    with torch.autocast("cpu", dtype=torch.float16, enabled=not enabled):
        z.sum().backward()
    assert dtypes == [torch.bfloat16 if enabled else torch.float32] * 2
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    ("told", "around", "runs"), [(True, None, 1), (False, None, 2), (True, False, 2), (False, True, 1)]
)
def test_early_stop_is_settled_by_the_first_run(told, around, runs):
    calls = []

    def end(x):
        calls.append(1)
        return x.clone()  # keeps nothing

    x = torch.tensor(1.0, requires_grad=True)
    with contextlib.nullcontext() if around is None else set_checkpoint_early_stop(around):
        y = checkpoint(lambda v: end(v.sin().cos()), x, use_reentrant=False, early_stop=told)
    y.backward()
    assert len(calls) == runs


@pytest.mark.parametrize("early_stop", [False, True])
def test_gradients_taken_within(early_stop):
    def slope(f):
        def of(x):
            with torch.enable_grad():
                return torch.autograd.grad(f(x), x, create_graph=True)[0]

        return of

    def kept(f):
        return lambda x: checkpoint(f, x, use_reentrant=False, early_stop=early_stop)

    def f(x):
        return x.sin().exp().sin()

    x = torch.tensor(0.7, requires_grad=True)
    expected = slope(slope(slope(f)))(x).item()
    assert slope(kept(slope(kept(slope(kept(f))))))(x).item() == expected


def test_a_second_run_that_keeps_something_else_is_an_error():
    def changing(first, second):
        runs = iter((first, second))
        return lambda x: next(runs)(x)

    short, long = lambda x: x.sin().exp(), lambda x: x.sin().exp().sin()
    x = torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="A different number of tensors was saved"):
        checkpoint(changing(long, short), x, use_reentrant=False).backward()
    with pytest.raises(RuntimeError, match="trying to save more tensors during recomputation"):
        checkpoint(changing(short, long), x, use_reentrant=False, early_stop=False).backward()
    checkpoint(changing(short, long), x, use_reentrant=False).backward()


def test_nothing_stays_alive_after_backward():
    class Mark:
        pass

    def call(mark):
        def function(x):
            assert mark is not None
            return (x * 2).relu().sigmoid()  # both keep their results

        return checkpoint(function, torch.ones(2, requires_grad=True), use_reentrant=False)

    mark = Mark()
    alive = weakref.ref(mark)
    call(mark).sum().backward()
    del mark
    gc.collect()
    assert alive() is None


def test_parts_that_other_implementations_of_checkpoints_use():
    from mica.utils.checkpoint import check_backward_validity, detach_variable, get_device_states, set_device_states

    x = torch.ones(2, requires_grad=True)
    leaf, number = detach_variable((x * 2, 3))
    assert leaf.is_leaf and leaf.requires_grad and number == 3
    assert get_device_states(x) == ([], []) and set_device_states([], []) is None
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        check_backward_validity([torch.ones(1)])


def test_a_checkpoint_says_that_it_wants_to_be_told_its_variant():
    with pytest.warns(UserWarning, match="calling checkpoint without use_reentrant will raise an exception"):
        checkpoint(lambda v: v.exp(), torch.ones(1, requires_grad=True))


def test_a_reentrant_checkpoint_refuses_a_pass_for_some_gradients():
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for run in (lambda y: torch.autograd.grad(y, x), lambda y: y.backward(inputs=[x])):
        with pytest.raises(RuntimeError, match="torch.utils.checkpoint is incompatible with .grad()"):
            run(checkpoint(lambda v: (v * w).sum(), x, use_reentrant=True))
        run(checkpoint(lambda v: (v * w).sum(), x, use_reentrant=False))
    assert w.grad is None and x.grad.tolist() == [1, 1]
