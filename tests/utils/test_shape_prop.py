"""torch.fx.passes.shape_prop: what the values of a graph are like."""

import copy

import mica
import pytest
from mica import fx, nn
from mica.fx.passes.shape_prop import ShapeProp


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 2, 3), nn.Linear(2, 4)

    def forward(self, x):
        values, indices = self.conv(x).mean((2, 3)).max(1)
        return self.linear(self.conv(x).mean((2, 3))), (values, indices), x.size(0)


def test_shapes_and_types_of_a_graph():
    graph = fx.symbolic_trace(Net())
    x = mica.randn(2, 3, 5, 5).to(memory_format=mica.channels_last)
    result = ShapeProp(graph).propagate(x)
    assert result[0].shape == (2, 4) and result[2] == 2
    metas = {node.name: node.meta for node in graph.graph.nodes}
    conv = metas["conv"]["tensor_meta"]
    assert conv.shape == (2, 2, 3, 3) and conv.dtype is mica.float32 and conv.requires_grad
    assert conv.memory_format is mica.channels_last and conv.stride == (18, 1, 6, 2)
    assert not conv.is_quantized and conv.qparams == {}
    pair = metas["max_1"]["tensor_meta"]
    assert pair[0].shape == (2,) and pair[1].dtype is mica.int64
    assert "tensor_meta" not in metas["size"] and metas["size"]["type"] is int
    again = copy.deepcopy(graph)
    assert [n.meta.get("type") for n in again.graph.nodes] == [n.meta.get("type") for n in graph.graph.nodes]


def test_the_node_that_fails(capsys):
    graph = fx.symbolic_trace(Net())
    with pytest.raises(RuntimeError, match="ShapeProp error for: node=%conv"):
        ShapeProp(graph).propagate(mica.randn(2, 4, 5, 5))
    assert "Traceback" in capsys.readouterr().err
