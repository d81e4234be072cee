"""The calls of exported graphs have their arguments as torch 2.13's graphs have them: the lines are torch's."""

import re

import mica as torch
from mica import nn
from mica.export import export
from mica.nn import functional as F

ON = "device = device(type='cpu'), pin_memory = False"

CASES = [
    (lambda x: torch.ones(2), f"ones.default([2], {ON})"),
    (lambda x: torch.zeros(2, 3, dtype=torch.int32, device="cpu"), f"zeros.default([2, 3], dtype = torch.int32, {ON})"),
    (lambda x: torch.full((2,), 3.0, requires_grad=True), f"full.default([2], 3.0, {ON})"),
    (lambda x: torch.arange(1, 3), f"arange.start(1, 3, {ON})"),
    (lambda x: torch.arange(0, 6, 2), f"arange.start_step(0, 6, 2, {ON})"),
    (lambda x: torch.randint(5, (2,)), f"randint.default(5, [2], {ON})"),
    (lambda x: torch.ones_like(x), "ones_like.default(x, pin_memory = False)"),
    (lambda x: x.new_full((2,), 1), "new_full.default(x, [2], 1, pin_memory = False)"),
    (lambda x: F.conv2d(x, x), "conv2d.default(x, x)"),
    (lambda x: F.conv2d(x, x, stride=2, padding=1), "conv2d.default(x, x, None, [2, 2], [1, 1])"),
    (lambda x: F.max_pool2d(x, 2), "max_pool2d.default(x, [2, 2])"),
    (lambda x: x.sum(1, keepdim=True), "sum.dim_IntList(x, [1], True)"),
    (lambda x: x.mean((2, 3)), "mean.dim(x, [2, 3])"),
    (lambda x: torch.add(x, x, alpha=1), "add.Tensor(x, x)"),
    (lambda x: torch.add(x, x, alpha=2), "add.Tensor(x, x, alpha = 2)"),
    (lambda x: F.gelu(x, approximate="tanh"), "gelu.default(x, approximate = 'tanh')"),
    (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
     "scaled_dot_product_attention.default(x, x, x, None, 0.0, True)"),
    (lambda x: x.roll(1), "roll.default(x, [1])"),
    (lambda x: x // 2, "floor_divide.default(x, 2)"),
    (lambda x: x.amax(1), "amax.default(x, [1])"),
]  # fmt: skip


class Calls(nn.Module):
    def forward(self, x):
        return [call(x) for call, _ in CASES]


def test_arguments_are_torchs():
    program = export(Calls(), (torch.randn(2, 2, 4, 4),))
    lines = re.findall(r"= torch\.ops\.aten\.(.*?\));?  ?", program.graph_module.code.replace("\n", "  \n"))
    assert lines == [line for _, line in CASES]
    assert len(program.module()(torch.randn(2, 2, 4, 4))) == len(CASES)


def test_changes_in_place_keep_their_names():
    class Changes(nn.Module):
        def forward(self, x):
            y = x + 0
            y.add_(1)
            return F.relu(y, inplace=True)

    names = [node.name for node in export(Changes(), (torch.ones(2),)).graph.nodes]
    assert names == ["x", "add", "add_", "relu_", "output"]
