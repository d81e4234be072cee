"""Patterns in graphs: which parts match, which nodes they are, and what goes with them."""

import mica as torch
import pytest
from mica import nn
from mica.fx import symbolic_trace
from mica.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap
from mica.fx.subgraph_rewriter import replace_pattern


def test_modules_of_a_pattern_go_with_it():
    def model(layer):
        class Named(nn.Module):
            def __init__(self):
                super().__init__()
                self.add_module(type(layer).__name__.lower(), layer)
                self.last = nn.ReLU()

            def forward(self, x):
                return self.last(getattr(self, type(layer).__name__.lower())(x))

        return Named()

    traced = symbolic_trace(model(nn.Sigmoid()))
    assert len(replace_pattern(traced, model(nn.Sigmoid()), model(nn.Tanh()))) == 1
    assert [name for name, _ in traced.named_children()] == ["last", "tanh"]
    x = torch.randn(4)
    assert torch.equal(traced(x), torch.relu(torch.tanh(x)))


def test_patterns_match_arguments_by_position_name_and_default():
    pool = torch.ops.aten.max_pool2d_with_indices.default

    def pattern(x, kernel_size, stride):
        return pool(x, kernel_size, stride, padding=[0, 0])

    for call in (
        lambda x: pool(x, [2, 2], stride=[2, 2]),
        lambda x: pool(x, [2, 2], [2, 2], [0, 0], [1, 1]),
        lambda x: pool(x, kernel_size=[2, 2], stride=[2, 2]),
    ):
        assert len(replace_pattern(symbolic_trace(call), pattern, pattern)) == 1
    assert len(replace_pattern(symbolic_trace(lambda x: pool(x, [2, 2], [2, 2], [1, 1])), pattern, pattern)) == 0


def test_defaults_of_lists_are_lists():
    defaults = {a.name: a.default_value for a in torch.ops.aten.conv2d.default._schema.arguments}
    assert defaults == {
        "input": None, "weight": None, "bias": None, "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1,
    }  # fmt: skip


def test_nodes_of_a_pattern_by_name():
    def pattern(x, weight):
        conv = torch.conv2d(x, weight)
        relu = torch.relu(conv)
        return relu, relu * 2, {"conv": conv, "relu": relu}

    def target(x, weight):
        relu = torch.relu(torch.conv2d(x * 2, weight * 3))
        return relu + relu * 2

    class Module(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, x, weight):
            return self.function(x, weight)

    inputs = torch.randn(1, 3, 3, 3), torch.randn(3, 3, 3, 3)
    exported = [torch.export.export(Module(f), inputs).module() for f in (pattern, target)]
    for wanted, given in (exported, [symbolic_trace(pattern), symbolic_trace(target)]):
        before = wanted(*inputs)
        (match,) = SubgraphMatcherWithNameNodeMap(wanted).match(given.graph)
        assert all(torch.equal(a, b) for a, b in zip(wanted(*inputs), before[:2], strict=True))
        assert set(match.name_node_map) == {"conv", "relu"}
        relu = match.name_node_map["relu"]
        assert relu in given.graph.nodes
        assert relu.args == (match.name_node_map["conv"],)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.relu(x), "return a tuple"),
        (lambda x: (torch.relu(x),), "at least two outputs"),
        (lambda x: (torch.relu(x), torch.cos(x)), "a dict output as the last element"),
    ],
)
def test_patterns_without_names_are_refused(function, message):
    traced = symbolic_trace(function)
    code = traced.code
    with pytest.raises(AssertionError, match=message):
        SubgraphMatcherWithNameNodeMap(traced)
    assert traced.code == code
