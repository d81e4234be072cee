"""Gradients of attention with masks and further keys are operators of the graph, which knows no constants of the example."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function
from mica.fx.experimental.proxy_tensor import make_fx


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("further", [{}, {"add_zero_attn": True}, {"add_bias_kv": True}])
@pytest.mark.parametrize("mask", ["none", "attention", "padding", "both"])
def test_gradients_of_multi_head_attention(mask, further, need_weights):
    layer = torch.nn.MultiheadAttention(8, 2, **further)

    def attend(x, hidden):
        attention = torch.ones(x.shape[0], x.shape[0]).triu(1).bool() if mask in ("attention", "both") else None
        padding = hidden if mask in ("padding", "both") else None
        return layer(x, x, x, padding, need_weights, attention)[0]

    def gradient(function, x, hidden):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x, hidden).square().sum(), x)[0]

    first, other = torch.zeros(2, 3) > 0, torch.tensor([[False, False, True], [False, True, False]])
    compiled = aot_function(attend, lambda graph, inputs: graph)
    traced = make_fx(lambda x, hidden: gradient(attend, x, hidden))(torch.randn(3, 2, 8), first)
    assert not any("multi_head" in str(node.target) for node in traced.graph.nodes)
    gradient(compiled, torch.randn(3, 2, 8), first)
    x = torch.randn(3, 2, 8)
    wanted = gradient(attend, x, other)
    assert gradient(compiled, x, other).allclose(wanted, atol=1e-5)
    assert traced(x, other).allclose(wanted, atol=1e-5)
