"""make_fx(pre_dispatch=True): graphs of the operators that a function calls."""

import mica as torch
import pytest
from mica import nn
from mica.fx.experimental.proxy_tensor import make_fx


def names(graph):
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_composites_stay_whole(mode):
    weight = nn.Parameter(torch.randn(2, 4))

    def f(x):
        with torch.no_grad():
            y = nn.functional.linear(x, weight)
        return nn.functional.dropout(y, 0.5, False).reshape(x.shape[0] * 2).matmul(torch.ones(x.shape[0] * 2))

    x = torch.randn(3, 4)
    options = {"tracing_mode": mode, "_allow_non_fake_inputs": True}
    above, below = make_fx(f, pre_dispatch=True, **options)(x), make_fx(f, **options)(x)
    assert {"aten.linear.default", "aten.dropout.default", "aten.matmul.default"} <= set(names(above))
    assert not {"aten.linear.default", "aten.matmul.default"} & set(names(below))
    assert [node.name for node in above.graph.nodes if node.op == "placeholder"] == ["x_1"]
    assert above._param_constant0 is weight
    assert torch.allclose(above(x), f(x)) and above(x).requires_grad is False
    if mode == "symbolic":
        y = torch.randn(5, 4)
        assert torch.allclose(above(y), f(y))


def test_nested_arguments_and_refusals():
    made = make_fx(lambda pair: {"sum": pair["a"] + pair["b"][0]}, pre_dispatch=True)(
        {"a": torch.ones(2), "b": [torch.ones(2)]}
    )
    assert made({"a": torch.ones(2), "b": [torch.ones(2)]})["sum"].tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="data-dependent"):
        make_fx(lambda x: x if x.sum() > 0 else -x, pre_dispatch=True)(torch.ones(2))
    with pytest.raises(NotImplementedError, match="decomposition_table"):
        make_fx(lambda x: x, {torch.ops.aten.t.default: None}, pre_dispatch=True)
