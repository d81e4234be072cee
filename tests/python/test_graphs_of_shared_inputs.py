"""Graphs of functions whose inputs lie in one memory, and of numbers that are roots of open sizes."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function
from mica.fx.experimental.proxy_tensor import make_fx
from mica.nn import functional as F


def changes(a, b):
    a.add_(1)
    return a + b


@pytest.mark.parametrize("needs_gradients", [False, True])
def test_what_one_input_writes_another_one_sees(needs_gradients):
    compiled = aot_function(changes, lambda graph, inputs: graph)

    def inputs(row):
        base = torch.ones(4, 2, requires_grad=needs_gradients)
        x = base.add(1)
        return base, x, x[0], x[row]

    for row in (0, 1, 0):  # the second row is another memory within the same storage
        (base, x, a, b), (base_2, x_2, a_2, b_2) = inputs(row), inputs(row)
        found, wanted = compiled(a, b), changes(a_2, b_2)
        assert found.tolist() == wanted.tolist() == ([6.0, 6.0] if row == 0 else [5.0, 5.0])
        assert x.equal(x_2)
        if needs_gradients:
            found.sum().backward()
            wanted.sum().backward()
            assert base.grad.equal(base_2.grad)
    with torch.inference_mode():
        _, _, a, b = inputs(0)
        assert compiled(a, b).tolist() == [6.0, 6.0]


def test_inputs_that_share_memory_and_stay_as_they_are_have_a_graph():
    graphs = []
    compiled = aot_function(lambda a, b: a * b, lambda graph, inputs: graphs.append(graph) or graph)
    x = torch.ones(3)
    assert compiled(x, x[:]).tolist() == [1.0] * 3 and len(graphs) == 1


@pytest.mark.parametrize("sizes", [(3, 4, 8), (2, 3, 4, 8)])
def test_scales_that_are_roots_of_open_sizes(sizes):
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    graph = make_fx(attention, tracing_mode="symbolic")(*(torch.randn(sizes) for _ in range(3)))
    for last in (8, 12):
        rows = [torch.randn(*sizes[:-1], last) for _ in range(3)]
        torch.manual_seed(1)
        found = graph(*rows)
        torch.manual_seed(1)
        assert torch.allclose(found, attention(*rows), atol=1e-6)
