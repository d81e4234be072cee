"""Who reads tensors beneath the calls of a captured function sees what the calls before have changed."""

import copy

import mica as torch
import pytest
from mica import nn

BACKENDS = [lambda graph, inputs: graph.forward, "aot_eager"]


def both(make, backend):
    """What a function gives as it is, and captured. `make` makes the function and what it works on, anew."""
    made = []
    for wrap in (lambda f: f, lambda f: torch.compile(f, backend=backend, fullgraph=False)):
        torch.manual_seed(0)
        function, args = make()
        made.append(wrap(function)(*args))
    return made


def check(make, backend=BACKENDS[0]):
    plain, captured = both(make, backend)
    assert len(plain) == len(captured)
    for a, b in zip(plain, captured, strict=True):
        assert torch.equal(a, b)


def a_step(optimizer, clip):
    def make():
        model = nn.Linear(3, 2)
        chosen = optimizer(model.parameters())

        def step(x):
            chosen.zero_grad()
            model(x).square().sum().backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            else:
                model.weight.grad.mul_(100.0)
            chosen.step()
            return model.weight + 0, model.bias + 0

        return step, (torch.randn(4, 3),)

    return make


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize(
    "optimizer",
    [lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.Adam(p, lr=0.1, eps=1.0)],
    ids=["SGD", "Adam"],
)
def test_a_step_sees_gradients_that_were_changed(optimizer, clip):
    check(a_step(optimizer, clip))


def test_a_step_with_a_closure_sees_a_changed_weight():
    def make():
        model = nn.Linear(3, 2)
        chosen = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)

        def step(x):
            def closure():
                chosen.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            with torch.no_grad():
                model.weight.mul_(3)
            return chosen.step(closure).detach(), model.weight + 0

        return step, (torch.randn(4, 3),)

    check(make)


def test_a_scaler_sees_gradients_that_were_changed():
    def make():
        weight = nn.Parameter(torch.ones(3))
        scaler, chosen = torch.amp.GradScaler("cpu", init_scale=4.0), torch.optim.SGD([weight], lr=0.1)

        def step(x):
            scaler.scale((weight * x).sum()).backward()
            weight.grad.mul_(2)
            scaler.unscale_(chosen)
            weight.grad.add_(1)
            scaler.step(chosen)
            scaler.update()
            return (weight + 0,)

        return step, (torch.randn(3),)

    check(make)


def test_copies_and_exchanges_of_promises():
    def make():
        kept = torch.randn(2, 3)

        def function(x):
            kept.mul_(3)
            made = kept + x
            again = copy.deepcopy(made)
            one, other = kept.clone(), made.clone()
            torch.utils.swap_tensors(one, other)
            return again, one, other

        return function, (torch.randn(2, 3),)

    check(make)


def test_gradients_of_batches_and_jacobians():
    def make():
        def function(x):
            leaf = x.detach().requires_grad_()
            seeds = torch.eye(6).view(6, 2, 3)
            rows = torch.autograd.grad(leaf * 2, leaf, seeds, is_grads_batched=True)[0]
            return rows, torch.autograd.functional.jacobian(lambda a: (a @ x.T).sum(1), leaf)

        return function, (torch.randn(2, 3),)

    check(make)


def test_a_gradient_of_a_gradient_within_a_function():
    def make():
        net = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 3))

        def function(x):
            leaf = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(net(leaf).sum(), leaf, create_graph=True)
            slope.square().sum().backward()
            return slope.detach(), leaf.grad, net[0].weight.grad

        return function, (torch.randn(2, 3),)

    for backend in BACKENDS:
        plain, captured = both(make, _ahead if backend == "aot_eager" else backend)
        for a, b in zip(plain, captured, strict=True):
            assert torch.allclose(a, b, atol=1e-6)


def _ahead(graph, inputs):
    from mica._functorch.aot_autograd import aot_module_simplified
    from mica._functorch.compilers import nop

    return aot_module_simplified(graph, inputs, nop)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_functions_that_read_lengths_and_places_of_tensors(fullgraph):
    """They run between two graphs, and are no error where there is to be one, as in torch."""

    def function(x, targets, lengths, places):
        x = (x * 2).log_softmax(2)
        loss = nn.functional.ctc_loss(x, targets, torch.full((2,), 5), lengths)
        return loss * 2, *torch.tensor_split(x + 1, places)

    args = torch.randn(5, 2, 6), torch.randint(1, 6, (2, 3)), torch.tensor([3, 2]), torch.tensor([1, 3])
    captured = torch.compile(function, backend=BACKENDS[0], fullgraph=fullgraph)(*args)
    for made, expected in zip(captured, function(*args), strict=True):
        assert torch.equal(made, expected)


@pytest.mark.parametrize("backend", [BACKENDS[0], "eager"])
def test_a_function_within_another_trace_is_a_part_of_it(backend):
    from mica.fx.experimental.proxy_tensor import make_fx

    captured = torch.compile(lambda x: x.sin() + x.shape[0], backend=backend, fullgraph=True)
    graph = make_fx(lambda x: captured(x) * 2, tracing_mode="symbolic")(torch.randn(3, 4))
    x = torch.randn(5, 6)
    assert torch.equal(graph(x), (x.sin() + 5) * 2)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_tensor_is_put_into_the_memory_of_another(fullgraph):
    def function(x, y):
        y.set_(x * 2)
        return y + 1, torch.empty(0).set_(x * 3) * 2

    x, y = torch.randn(4, 5), torch.empty(0)
    made = torch.compile(function, backend=BACKENDS[0], fullgraph=fullgraph)(x, y)
    assert torch.equal(y, x * 2)
    for each, expected in zip(made, (x * 2 + 1, x * 3 * 2), strict=True):
        assert torch.equal(each, expected)
