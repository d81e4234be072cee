"""Functions that are compiled ahead of time: gradients of other strides, and inputs that are changed in place."""

import mica as torch
import pytest
from mica import nn
from mica._functorch.aot_autograd import aot_function, aot_module_simplified
from mica._functorch.compilers import nop


def ahead(graph, inputs):
    return aot_module_simplified(graph, inputs, nop)


def test_a_gradient_has_other_strides_than_the_result():
    weight = torch.randn(4, 5, requires_grad=True)
    x = torch.randn(3, 2, 4)

    def function(weight):
        return (x.reshape(6, 4) @ weight).view(3, 2, 5)

    seed = torch.randn(2, 3, 5).transpose(0, 1)
    made = aot_function(function, nop)(weight)
    (got,) = torch.autograd.grad(made, weight, seed)
    (expected,) = torch.autograd.grad(function(weight), weight, seed)
    assert torch.allclose(got, expected, atol=1e-6)


def test_an_input_without_gradient_gets_one():
    weight = torch.randn(3, requires_grad=True)

    def function(total, index, weight):
        total.index_add_(0, index, weight.sin())
        return total

    index, results = torch.tensor([0, 2, 0]), []
    for f in (function, aot_function(function, nop)):
        total = torch.ones(3)
        made = f(total, index, weight)
        assert made is total and total.requires_grad
        results.append((total.detach(), *torch.autograd.grad(total.square().sum(), weight)))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b)


def test_a_result_that_is_summed_up_over_breaks_has_gradients():
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def function(x, chosen):
        out = torch.zeros_like(x)
        for i, layer in enumerate(layers):
            (rows,) = torch.where(chosen == i)
            out.index_add_(0, rows, layer(x[rows]))
        return out

    x, chosen, results = torch.randn(6, 4), torch.tensor([0, 1, 1, 0, 1, 0]), []
    for f in (function, torch.compile(function, backend=ahead)):
        results.append(torch.autograd.grad(f(x, chosen).square().sum(), list(layers.parameters())))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_a_parameter_is_changed_where_nothing_is_recorded():
    results = []
    for wrap in (lambda f: f, lambda f: torch.compile(f, backend=ahead)):
        weight = nn.Parameter(torch.ones(2, 3))

        def function(x, weight=weight):
            with torch.no_grad():
                weight.add_(x.sum())
            return weight * x

        made = wrap(function)(torch.full((2, 3), 0.5))
        results.append((weight.detach(), made.detach(), *torch.autograd.grad(made.sum(), weight)))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_need_each_other_to_be_fixed(dynamic):
    gate, experts = torch.randn(8, 4), torch.randn(4, 8, 8)

    def function(x):
        batch, length, width = x.shape
        rows = x.reshape(-1, width)
        weights, chosen = (rows @ gate).softmax(-1).topk(2, -1)
        room = max(1, int(1.25 * rows.shape[0] * 2 / 4))
        places = torch.nn.functional.one_hot(chosen.T.reshape(-1), 4)
        place = ((places.cumsum(0) * places).sum(-1) - 1).clamp(max=room - 1)
        token, expert = torch.arange(rows.shape[0]).repeat(2), chosen.T.reshape(-1)
        held = torch.zeros(4, room, width).index_put((expert, place), rows[token], accumulate=True)
        made = torch.bmm(held, experts)[expert, place] * weights.T.reshape(-1)[:, None]
        return torch.zeros_like(rows).index_add_(0, token, made).view(batch, length, width)

    compiled = torch.compile(function, backend=lambda graph, inputs: graph.forward, dynamic=dynamic)
    for length in (6, 5, 7):
        x = torch.randn(2, length, 8)
        assert torch.equal(compiled(x), function(x))


def test_a_generator_of_the_programs_own_is_left_to_the_first_run():
    def function(x, generator):
        return x + torch.randn(x.shape, generator=generator)

    x, made = torch.zeros(3, requires_grad=True), []
    for f in (function, torch.compile(function, backend=ahead)):
        generator = torch.Generator().manual_seed(3)
        made.append(torch.stack([f(x, generator), f(x, generator)]))
    assert torch.equal(*made)


def test_a_loss_that_is_detached_in_the_next_graph():
    results = []
    for wrap in (lambda f: f, lambda f: torch.compile(f, backend=ahead)):
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)

        def function(x, layer=layer):
            total = 0
            for part in x.chunk(2):
                loss = layer(part).square().sum()
                loss.backward()
                total = total + loss.detach()
            return total

        total = wrap(function)(torch.randn(4, 3))
        results.append((total, layer.weight.grad))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b)
