"""Operators of torch.ops, as graphs of a backend and modes of __torch_function__ see them: the overload or the packet that is called."""

import mica as torch
import pytest
from mica.overrides import TorchFunctionMode


@pytest.fixture(scope="module")
def double():
    @torch.library.custom_op("as_called::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(torch.empty_like)
    return double


def test_a_graph_calls_the_operator_itself(double):
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph

    @torch.compile(backend=keep, fullgraph=True)
    def function(x):
        y = torch.ops.aten.add.Tensor(x, x)
        z = torch.ops.as_called.double(torch.ops.aten.mul(y, y))
        return torch.ops.as_called.double.default(double(z)).max(0)[0].sin()

    x = torch.randn(3, 2)
    expected = (8 * (4 * x * x)).max(0)[0].sin()
    assert torch.equal(function(x), expected)
    ops = torch.ops
    own = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"][:5]
    overload = ops.as_called.double.default
    assert own == [ops.aten.add.Tensor, ops.aten.mul, ops.as_called.double, overload, overload]
    code = graphs[0].code
    assert "add_Tensor = torch.ops.aten.add.Tensor(l_x_, l_x_)" in code
    assert "double_default = torch.ops.as_called.double.default(double)" in code


def test_operators_that_change_ask_or_draw_end_graphs_as_functions_do():
    counts = []

    def count(graph, inputs):
        counts.append([node.op for node in graph.graph.nodes].count("call_function"))
        return graph

    @torch.compile(backend=count)
    def function(x):
        torch.ops.aten.mul_.Tensor(x, 2)
        found = torch.ops.aten.nonzero.default(x)  # its size is in the values
        return torch.ops.aten.bernoulli.p(x, 0.5), found

    x = torch.tensor([1.0, 0.0])
    torch.manual_seed(4)
    drawn, found = function(x)
    torch.manual_seed(4)
    assert x.tolist() == [2, 0] and found.tolist() == [[0]]
    assert torch.equal(drawn, torch.bernoulli(torch.tensor([2.0, 0.0]), 0.5))
    assert counts == [1, 1]


def test_a_mode_is_handed_the_operator_and_answers_it(double):
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Watch():
        torch.ops.aten.add.Tensor(x, x, alpha=2)
        torch.ops.aten.mul(x, 3)
        double(x)
        torch.ops.as_called.double(x)
    ops = torch.ops
    assert seen == [ops.aten.add.Tensor, ops.aten.mul, ops.as_called.double.default, ops.as_called.double]


def test_a_class_is_handed_the_overload(double):
    seen = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    double(torch.ones(2).as_subclass(Own))
    assert seen == [torch.ops.as_called.double.default]
