"""Autocast and graphs of aten's operators: a graph has the casts that were made as it was traced, and no others."""

import mica as torch
import pytest
from mica._functorch import config
from mica._functorch.aot_autograd import aot_function

VALUES = torch.tensor([[0.1, 1.7, -0.3], [0.9, 0.33, 1.1], [-1.3, 0.7, 0.21]])


def inputs():
    return [each.clone().requires_grad_() for each in (VALUES, VALUES.t() * 3)]


def targets(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def test_a_part_without_autocast_stays_so():
    def f(x, w):
        with torch.autocast("cpu", enabled=False):
            return (x @ w).sin()

    x, w = inputs()
    with torch.no_grad():
        expected = f(x, w)
    for recorded in (True, False):
        compiled = aot_function(f, fw_compiler=lambda graph, example: graph)
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.set_grad_enabled(recorded):
            result = compiled(x, w)
        assert result.dtype == torch.float32 and torch.equal(result, expected)


def test_backward_pass_autocast():
    def pass_of(setting):
        graphs = []

        def keep(graph, example):
            graphs.append(targets(graph))
            return graph

        x, w = inputs()
        with config.patch(backward_pass_autocast=setting), torch.autocast("cpu", dtype=torch.bfloat16):
            aot_function(lambda x, w: (x @ w).sum(), fw_compiler=keep)(x, w).backward()
        copies = graphs[1].count(torch.ops.aten._to_copy.default)
        return x.grad, copies

    same, fewer = pass_of("same_as_forward")
    assert torch.equal(same, pass_of("off")[0]) and torch.equal(same, pass_of([])[0])
    half = VALUES.t().mul(3).bfloat16().half().sum(1)
    cast, more = pass_of([{"device_type": "cpu", "dtype": torch.float16}])
    assert more > fewer and torch.equal(cast, half.bfloat16().float().expand(3, 3))
    for wrong, words in ((3, "to be a list, got <class 'int'>"), ([3], "to be a dict, got <class 'int'>")):
        with pytest.raises(AssertionError, match=words):
            pass_of(wrong)
