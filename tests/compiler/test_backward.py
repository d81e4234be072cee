"""Backward passes of compiled functions: kernels are put off from the first node on that such a function made."""

import threading

import mica as torch
import pytest
from mica import nn
from mica.nn import functional as F

N = 20_000


@pytest.fixture(autouse=True)
def what_is_put_off():
    before = torch._C._set_least_recorded_elements(4096)
    yield
    torch._C._set_least_recorded_elements(before)


def leaf(seed=0, *shape):
    return torch.randn(*(shape or (N,)), generator=torch.Generator().manual_seed(seed)).requires_grad_()


def chain(x, y):
    return torch.sigmoid((x * 2 + 1).sin() * y - x / 3).mul(y).add(x)


def gradients(function, run=lambda loss: loss.backward()):
    x, y = leaf(1), leaf(2)
    run((function(x, y) * 3).sum())
    return x.grad, y.grad


def calls():
    return torch._C._recording_counts()["calls"]


def test_kernels_of_the_pass_are_put_off_with_the_same_bits():
    expected = gradients(chain)
    x, y = leaf(1), leaf(2)
    loss = (torch.compile(chain)(x, y) * 3).sum()
    before = torch._C._recording_counts()
    loss.backward()
    ran = {name: value - before[name] for name, value in torch._C._recording_counts().items()}
    assert torch.equal(x.grad, expected[0]) and torch.equal(y.grad, expected[1])
    assert ran["calls"] > 10 and ran["loops"] < ran["calls"] and ran["bytes_kept_out_of_memory"] > 4 * N
    assert not torch.compiler.is_compiling()


def test_a_pass_without_such_nodes_puts_nothing_off():
    before = calls()
    gradients(chain)
    assert calls() == before


def test_what_runs_before_the_first_such_node_runs_at_once():
    x, y = leaf(1), leaf(2)
    loss = chain(torch.compile(chain)(x, y), y).sum()
    seen = []
    loss.grad_fn.next_functions[0][0].register_hook(lambda *_: seen.append(calls()))
    before = calls()
    loss.backward()
    assert seen == [before] and calls() > before


def test_gradients_are_added_to_those_that_are_there():
    def twice(function):
        x, y = leaf(1), leaf(2)
        for _ in range(2):
            (function(x, y) * 3).sum().backward()
        return x.grad, y.grad

    for a, b in zip(twice(chain), twice(torch.compile(chain)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("function", [chain, torch.compile(chain)])
def test_hooks_see_gradients_and_no_compiled_function(function):
    seen = []

    def hooked(x, y):
        middle = function(x, y)
        middle.register_hook(lambda g: seen.append((torch.compiler.is_compiling(), g.sum().item())) or g * 2)
        return middle

    found = gradients(hooked)
    assert seen == [(False, 3.0 * N)]
    assert all(torch.equal(a, 2 * b) for a, b in zip(found, gradients(chain), strict=True))


def test_a_compiled_function_within_a_hook_is_one():
    seen = []

    @torch.compile
    def doubled(g):
        seen.append(torch.compiler.is_compiling())
        return g * 2 + 1

    def hooked(x, y):
        middle = torch.compile(chain)(x, y)
        middle.register_hook(lambda g: doubled(g))
        middle.register_hook(lambda g: seen.append(torch.compiler.is_compiling()))
        return middle

    found = gradients(hooked)
    assert seen == [True, False]
    x, y = leaf(1), leaf(2)
    chain(x, y).backward(torch.full((N,), 7.0))
    assert torch.equal(found[0], x.grad) and torch.equal(found[1], y.grad)


def test_a_graph_that_is_kept_gives_the_same_again():
    x, y = leaf(1), leaf(2)
    loss = torch.compile(chain)(x, y).sum()
    first = torch.autograd.grad(loss, (x, y), retain_graph=True)
    second = torch.autograd.grad(loss, (x, y))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, (x, y))


def test_derivatives_of_derivatives():
    def penalty(function):
        x, y = leaf(1), leaf(2)
        (g,) = torch.autograd.grad(function(x, y).sum(), x, create_graph=True)
        (g * g).sum().backward()
        return g, x.grad, y.grad

    for a, b in zip(penalty(chain), penalty(torch.compile(chain)), strict=True):
        assert torch.equal(a, b)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("not this one")


def test_a_pass_that_fails_leaves_nothing_put_off():
    x, y = leaf(1), leaf(2)
    loss = torch.compile(lambda x, y: chain(Fails.apply(x), y))(x, y).sum()
    with pytest.raises(ValueError, match="not this one"):
        loss.backward()
    assert x.grad is None and not torch._C._is_recording()
    before = calls()
    assert torch.equal(torch.ones(N) * 2, torch.full((N,), 2.0)) and calls() == before


def test_a_pass_on_another_thread():
    expected = gradients(chain)
    x, y = leaf(1), leaf(2)
    loss = (torch.compile(chain)(x, y) * 3).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert torch.equal(x.grad, expected[0]) and torch.equal(y.grad, expected[1])


def test_layers_train_alike():
    def train(compiler):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(64, 256),
            nn.GELU(),
            nn.LayerNorm(256),
            nn.Linear(256, 256),
            nn.SiLU(),
            nn.BatchNorm1d(256),
            nn.Linear(256, 10),
        )
        compiled, optimizer = compiler(model), torch.optim.AdamW(model.parameters(), 1e-3)
        losses = []
        for step in range(3):
            x = torch.randn(128, 64, generator=torch.Generator().manual_seed(step))
            loss = F.cross_entropy(compiled(x), torch.arange(128) % 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().clone() for p in model.parameters()]

    expected, found = train(lambda m: m), train(torch.compile)
    assert expected[0] == found[0]
    assert all(torch.equal(a, b) for a, b in zip(expected[1], found[1], strict=True))


def test_the_report_says_where_the_pass_ended():
    x, y = leaf(1), leaf(2)
    report = torch.explain(torch.compile(lambda x, y: chain(x, y).sum().backward()), x, y)
    assert "the end" in str(report)
