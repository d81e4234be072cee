"""torch.onnx.export: which tensors are inputs of a file, which sizes stay dynamic, and conditions that inputs decide."""

import math

import mica as torch
import pytest
from mica import nn
from mica.nn import functional as F

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


class Module(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.places = nn.Parameter(torch.randn(1, 64, 6))
        self.register_buffer("mask", torch.ones(64, 64).tril())

    def forward(self, x):
        return self.function(self, x)


class Several(nn.Module):
    def forward(self, *args, **named):
        return args[0] * 2 - args[1], named["scale"] + 1


class Nested(nn.Module):
    def forward(self, pair, given):
        return pair[0] * given["a"] - pair[1]


def names_of(made):
    return [each.name for each in made.model_proto.graph.input]


def test_arguments_that_are_gathered_are_inputs():
    x, y, scale = torch.randn(3), torch.randn(3), torch.randn(2)
    made = torch.onnx.export(Several(), (x, y), kwargs={"scale": scale})
    assert names_of(made) == ["args_0", "args_1", "scale"]
    ours = made.call_reference(x + 1, y * 3, scale * 2)
    assert torch.allclose(ours[0], (x + 1) * 2 - y * 3) and torch.allclose(ours[1], scale * 2 + 1)


def test_tensors_in_lists_and_dicts_are_inputs():
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    shapes = {"pair": [{0: "n"}, {0: "n"}], "given": {"a": {0: "n"}}}
    made = torch.onnx.export(Nested(), ([x, y], {"a": x}, {}), dynamic_shapes=shapes)
    assert names_of(made) == ["pair_0", "pair_1", "given_a"]
    a, b, c = (torch.randn(5, 3) for _ in range(3))
    assert torch.allclose(made.call_reference(a, b, c)[0], a * c - b)


def test_shapes_are_given_by_parameters_where_inputs_have_other_names():
    made = torch.onnx.export(
        Module(lambda _, x: x * 2), (torch.randn(2, 3),), input_names=["first"], dynamic_shapes={"x": {0: "n"}}
    )
    assert made.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


FOLLOWING = {
    "places": lambda self, x: x + self.places[:, : x.shape[1]],
    "mask": lambda self, x: (x @ x.mT).masked_fill(self.mask[: x.shape[1], : x.shape[1]] == 0, -1e9),
    "arange": lambda self, x: x.sum(-1) + torch.arange(1, x.shape[1] + 1),
    "frequencies": lambda self, x: torch.outer(torch.arange(x.shape[1]).float(), torch.arange(6).float()).cos() * x,
    "shifted": lambda self, x: x[:, 1:] - x[:, :-1],
    "last": lambda self, x: x[:, -2:].flatten(1),
    "causal": lambda self, x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "mean": lambda self, x: x.sum(1) / x.shape[1],
    "deviation": lambda self, x: x.std(1),
    "roll": lambda self, x: x.roll(1, 1),
    "rows": lambda self, x: (x.reshape(-1, 6) * 2).reshape(x.shape),
    "all": lambda self, x: x.reshape(x.shape[0] * x.shape[1], 6),
    "scatter": lambda self, x: x.scatter(2, x.argmax(2, keepdim=True), 9.0),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows_a_dynamic_size(name):
    torch.manual_seed(0)
    module = Module(FOLLOWING[name])
    made = torch.onnx.export(module, (torch.randn(2, 5, 6),), dynamic_shapes=({0: "b", 1: "t"},))
    for size in ((2, 5, 6), (3, 30, 6), (4, 7, 6)):
        x = torch.randn(size)
        ours, meant = made.call_reference(x)[0], module(x)
        assert ours.shape == meant.shape and torch.allclose(ours, meant, atol=1e-5)


@pytest.mark.parametrize(
    "function", [lambda _, x: x * math.sqrt(x.shape[1]), lambda _, x: x @ x.mT + torch.eye(x.shape[1])]
)
def test_numbers_of_the_examples_size_are_refused(function):
    with pytest.raises(torch.onnx.OnnxExporterError, match="depends on a size that is declared dynamic"):
        torch.onnx.export(Module(function), (torch.randn(2, 5, 6),), dynamic_shapes=({1: "t"},))


def test_a_condition_that_an_input_decides():
    def function(self, x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda y: (y + self.places[0, 0], y), lambda y: (y - x, x), (y,))

    module = Module(function)
    made = torch.onnx.export(module, (torch.ones(6),))
    for x in (torch.ones(6), -torch.ones(6)):
        for ours, meant in zip(made.call_reference(x), module(x), strict=True):
            assert torch.allclose(ours, meant)


def test_a_loop_that_an_input_decides_is_refused():
    def function(_, x):
        return torch.while_loop(lambda x: x.sum() < 9, lambda x: (x * 2,), (x,))[0]

    with pytest.raises(torch.onnx.OnnxExporterError, match="how often it runs"):
        torch.onnx.export(Module(function), (torch.ones(3),))


def test_pools_with_indices_and_masks_of_padding():
    def pooled(_, x):
        return F.max_pool2d(x, 2, return_indices=True)

    x = torch.randn(2, 3, 4, 6)
    for ours, meant in zip(torch.onnx.export(Module(pooled), (x,)).call_reference(-x), pooled(None, -x), strict=True):
        assert torch.equal(ours, meant)

    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x, padding = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False, True, True]])
    made = torch.onnx.export(layer, (x,), kwargs={"src_key_padding_mask": padding})
    other = torch.tensor([[False, True, True], [False, False, True]])
    assert torch.allclose(made.call_reference(x, other)[0], layer(x, src_key_padding_mask=other), atol=1e-5)
