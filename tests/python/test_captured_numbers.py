"""Captured functions whose numbers differ from call to call, and which compute with nested tensors."""

import warnings

import mica as torch
import pytest
from mica import nn


def kept(graph, inputs):
    return graph.forward


def test_other_numbers_of_pythons_are_no_failure_of_one_graph():
    cache, x = torch.zeros(2, 24, 4), torch.randn(2, 1, 4)

    @torch.compile(backend=kept, fullgraph=True)
    def step(x, cache, position):
        cache[:, position : position + 1] = x
        return cache[:, : position + 1].sum(1)

    for position in range(20):
        made = step(x + position, cache, position)
        assert torch.equal(made, cache[:, : position + 1].sum(1))
    assert torch.equal(cache[:, 19], x[:, 0] + 19)


def test_other_operations_are_a_failure_of_one_graph():
    functions = [
        torch.sin,
        torch.cos,
        torch.tan,
        torch.exp,
        torch.tanh,
        torch.abs,
        torch.neg,
        torch.relu,
        torch.sigmoid,
    ]

    @torch.compile(backend=kept, fullgraph=True)
    def step(x, function):
        return function(x)

    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        for function in functions:
            step(torch.ones(2), function)


def test_nested_tensors():
    torch.manual_seed(0)
    linear, norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def function(x):
        y = norm(torch.nn.functional.gelu(linear(x)) + x) * 2
        z = linear(y.values()).sin()
        return torch.nested.to_padded_tensor(y + x, 0.0), z

    results = []
    for f in (function, torch.compile(function, backend=kept)):
        parts = [torch.arange(12.0).view(3, 4), torch.ones(2, 4)]
        x = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
        padded, z = f(x)
        linear.zero_grad()
        (padded.sum() + z.sum()).backward()
        results.append((padded, z, x.grad.values(), linear.weight.grad.clone()))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_warnings_have_sizes_that_there_are():
    def function(x, y):
        return torch.nn.functional.mse_loss(x.unsqueeze(-1), y).sum()

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        torch.compile(function, backend=kept, dynamic=True)(torch.ones(5), torch.ones(5))
    assert all("5" in str(each.message) for each in given if "target size" in str(each.message))
