"""as_tensor, asarray, tensor and new_tensor of what a graph computes, and attention whose scores a program changes."""

import warnings

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export
from mica.nn.attention.flex_attention import create_block_mask, flex_attention

CALLS = {
    "as_tensor": lambda x: torch.as_tensor(x * 2),
    "on a device": lambda x: torch.as_tensor(x, device="cpu") + 1,
    "of a dtype": lambda x: torch.as_tensor(x * 2, dtype=torch.float64),
    "asarray": lambda x: torch.asarray(x * 2, dtype=torch.float64, copy=True),
    "tensor": lambda x: torch.tensor(x * 2),
    "new_tensor": lambda x: x.new_tensor(x * 2),
    "of a size": lambda x: torch.as_tensor(x.shape[0]) * x,
}


class Program(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def nop(graph, example):
    return graph.forward


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.tensor(x)
        yield


@pytest.mark.parametrize("name", CALLS)
def test_calls_in_graphs(name):
    function = CALLS[name]
    example, x = torch.randn(3), torch.randn(3)
    for options in ({"backend": nop}, {"backend": "aot_eager", "fullgraph": True}):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(function, **options)(x), function(x))
    for shapes in (None, (({0: Dim.AUTO},),)):
        program = export(Program(function), (example,), dynamic_shapes=shapes)
        y = x if shapes is None else torch.randn(5)
        for made in (program, program.run_decompositions()):
            torch.testing.assert_close(made.module()(y), function(y))


def test_modes_see_the_conversion():
    names = []

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Seen():
        made = torch.as_tensor(torch.ones(2), dtype=torch.int64)
    assert made.dtype is torch.int64 and names[-1] == "to"
    x = torch.ones(2)
    assert torch.as_tensor(x) is x and torch.asarray(x).data_ptr() == x.data_ptr()


SLOPES = torch.exp2(-torch.arange(1.0, 3.0))


def in_a_window(b, h, i, j):
    return (i >= j) & (i - j < 9)


def with_slopes(score, b, h, i, j):
    return score + SLOPES[h] * (j - i)


ATTENTION = {
    "a mask": lambda q, k, v, mask: flex_attention(q, k, v, block_mask=mask),
    "scores": lambda q, k, v, mask: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j)),
    "both": lambda q, k, v, mask: flex_attention(q * 2, k, v, score_mod=with_slopes, block_mask=mask),
    "a mask of its own": lambda q, k, v, mask: flex_attention(
        q, k, v, block_mask=create_block_mask(in_a_window, None, None, 24, 24, device="cpu")
    ),
    "a computed factor": lambda q, k, v, mask: flex_attention(q, k, v, score_mod=scaled_by(q.mean())),
}


def scaled_by(factor):
    return lambda score, b, h, i, j: score * factor


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_with_scores_of_ones_own_in_graphs(name):
    mask = create_block_mask(in_a_window, None, None, 24, 24, device="cpu")

    def function(q, k, v):
        return ATTENTION[name](q, k, v, mask)

    q, k, v = (torch.randn(2, 2, 24, 8) for _ in range(3))
    theirs = function(q, k, v)
    for options in ({"backend": nop}, {"backend": nop, "fullgraph": True}, {"backend": "aot_eager", "fullgraph": True}):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(function, **options)(q, k, v), theirs)
    torch.testing.assert_close(export(Program(function), (k, v, q)).module()(q, k, v), theirs)
