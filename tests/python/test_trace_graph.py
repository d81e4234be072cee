"""torch.jit._get_trace_graph: what runs, as a graph that can be read."""

import mica
from mica import nn
from mica.jit import _get_trace_graph
from mica.jit._trace_graph import tracing_state


def test_nodes_have_shapes_numbers_and_scopes():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

        def forward(self, x):
            tracing_state().push_scope("body")
            y = nn.functional.adaptive_avg_pool2d(self.conv(x).relu(), 1).flatten(1)
            tracing_state().pop_scope()
            return self.head(y)

    graph, out = _get_trace_graph(Net(), (mica.ones(2, 3, 8, 8),))
    nodes = list(graph.nodes())
    assert [n.kind() for n in nodes] == [
        "aten::_convolution",
        "aten::relu",
        "aten::adaptive_avg_pool2d",
        "aten::view",
        "aten::linear",
    ]
    assert [n.scopeName() for n in nodes] == ["body"] * 4 + [""]
    inputs, outputs = list(nodes[0].inputs()), list(nodes[0].outputs())
    assert inputs[0].type().sizes() == [2, 3, 8, 8] and inputs[1].type().sizes() == [4, 3, 3, 3]
    assert inputs[6].toIValue() is False and inputs[3].toIValue() == [1, 1]
    assert outputs[0].isCompleteTensor() and outputs[0].type().sizes() == [2, 4, 6, 6]
    assert [v.type().sizes() for v in list(nodes[-1].inputs())] == [[2, 4], [2, 4], [2]]
    assert out.shape == (2, 2) and out.requires_grad and tracing_state() is None


def test_equations():
    a = mica.ones(2, 3)
    graph, _ = _get_trace_graph(lambda x: mica.einsum("ij,kj->ik", x, x), (a,))
    (node,) = graph.nodes()
    equation, operands = node.inputs()
    assert equation.toIValue() == "ij,kj->ik"
    assert [v.type().sizes() for v in operands.node().inputs()] == [[2, 3], [2, 3]]
