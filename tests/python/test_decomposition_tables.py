"""Tables of decompositions: torch._decomp, and the table that a program changes before it decomposes an export."""

import mica as torch
import pytest
from mica import nn
from mica._decomp import core_aten_decompositions, get_decompositions, register_decomposition, remove_decompositions
from mica._functorch.aot_autograd import aot_function
from mica.export.decomp_utils import CustomDecompTable
from mica.fx.experimental.proxy_tensor import make_fx
from mica.nn import functional as F

aten = torch.ops.aten


def names(graph):
    return {node.name for node in graph.nodes if node.op == "call_function"}


CALLS = {
    "gelu": (F.gelu, [aten.gelu]),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), [aten.gelu]),
    "silu": (F.silu, [aten.silu.default]),
    "layer_norm": (lambda x: F.layer_norm(x, (4,), torch.ones(4) * 2, torch.ones(4)), [aten.native_layer_norm]),
    "addmm": (lambda x: torch.addmm(x, x @ x.t(), x, beta=0.5, alpha=2), [aten.addmm]),
    "softmax": (lambda x: x.softmax(0) + x.log_softmax(1), [aten._softmax, aten._log_softmax]),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), [aten.leaky_relu]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_graphs_with_decompositions_by_name(name, dtype):
    function, ops = CALLS[name]
    table = get_decompositions(ops)
    assert table
    x = torch.randn(3, 4).to(dtype)
    function = function if dtype is torch.float32 or "norm" not in name else lambda x: F.layer_norm(x, (4,))
    graph = make_fx(function, decomposition_table=table)(torch.randn(3, 4).to(dtype))
    assert not table.keys() & {node.target for node in graph.graph.nodes}
    torch.testing.assert_close(graph(x), function(x))


def test_the_core_table_serves_traces_and_exports():
    class Program(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            return F.silu(self.linear(x))

    table, module, x = core_aten_decompositions(), Program(), torch.randn(4, 3)
    assert aten.linear.default in table
    graph = make_fx(lambda x: F.silu(x).std(), decomposition_table=table)(x)
    assert "silu" not in names(graph.graph)
    torch.testing.assert_close(graph(x), F.silu(x).std())
    loss = aot_function(lambda x: module(x).sum(), lambda graph, example: graph.forward, decompositions=table)
    loss(x.requires_grad_()).backward()
    assert x.grad.shape == x.shape
    program = torch.export.export(module, (x.detach(),))
    assert "addmm" in names(program.run_decompositions(table).graph)
    own = CustomDecompTable()
    del own[aten.linear.default]
    assert names(program.run_decompositions(own).graph) == {"linear", "sigmoid", "mul"}
    assert aten.linear.default not in own.copy() and aten.linear.default in CustomDecompTable()


def test_tables_of_ones_own():
    own = {}

    @register_decomposition([aten.sin, aten.cos.default], registry=own)
    def turned(x):
        return x * 2

    assert aten.sin.default in own and aten.cos.default in own
    graph = make_fx(torch.sin, decomposition_table=own)(torch.ones(2))
    assert names(graph.graph) == {"mul"}
    remove_decompositions(own, [aten.sin])
    assert aten.sin.default not in own and aten.cos.default in own
    with pytest.raises(RuntimeError, match="duplicate registrations for aten.cos.default"):
        register_decomposition(aten.cos.default, registry=own)(turned)
    with pytest.raises(AssertionError):
        get_decompositions([aten.sin], type="none")
