"""AOT autograd and its inputs and draws: inputs that share memory, and checkpoints that draw random numbers."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function, aot_module_simplified
from mica.utils.checkpoint import checkpoint


def nop(graph, example):
    return graph.forward


def by_operators(graph, example):
    return aot_module_simplified(graph, example, fw_compiler=nop)


def change_a_view(base, view):
    view.mul_(2)
    rows = base.sum(0)
    base[0] = 7
    return rows, view.sum(), base + 1


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("backend", [by_operators, "aot_eager"])
def test_an_input_that_is_a_view_of_another_sees_its_change(backend):
    torch._dynamo.reset()
    compiled = torch.compile(change_a_view, backend=backend, fullgraph=True)
    for share in (True, False, True):  # graphs are compared by sizes, so that the same one is called
        x, y = (torch.arange(20.0).view(4, 5) for _ in range(2))
        ours = compiled(x, x[1:3] if share else x.clone()[1:3])
        theirs = change_a_view(y, y[1:3] if share else y.clone()[1:3])
        assert same((*ours, x), (*theirs, y))


@pytest.mark.parametrize("tied", ["dropout", "bernoulli", "attention"])
def test_checkpoints_in_a_traced_function_draw_once(tied):
    def block(t):
        if tied == "dropout":
            return torch.nn.functional.dropout(t.sin(), 0.3).exp()
        if tied == "bernoulli":
            return torch.bernoulli(torch.full_like(t, 0.4)) * t.exp()
        return torch.nn.functional.scaled_dot_product_attention(t, t, t, dropout_p=0.5)

    def f(x):
        return checkpoint(block, x, use_reentrant=False).sum()

    x = torch.randn(2, 4, 6, requires_grad=True)
    torch.manual_seed(1)
    f(x).backward()
    theirs, x.grad = x.grad, None
    compiled = aot_function(f, nop)
    torch.manual_seed(1)
    compiled(x).backward()
    torch.testing.assert_close(x.grad, theirs)


def test_checkpoints_without_draws_are_computed_again():
    kept = []

    def count(graph, example):
        kept.append(len([node for node in graph.graph.nodes if "sin" in node.name]))
        return graph.forward

    x = torch.randn(4, requires_grad=True)
    aot_function(lambda x: checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False).sum(), count)(x).backward()
    assert kept == [1, 1]
    torch.testing.assert_close(x.grad, x.detach().sin().exp() * x.detach().cos())
