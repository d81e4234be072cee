"""Exported modules with open sizes: programs as they are written, on sizes that the example has not."""

import math

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export

ALL = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
IMAGE = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _check(module, example, other, sizes):
    program = export(module, example, dynamic_shapes=sizes)
    for each in (program, program.run_decompositions()):
        given, wanted = each.module()(*other), module(*other)
        assert given.shape == wanted.shape and torch.allclose(given, wanted, atol=1e-6)
    return program


@pytest.mark.parametrize(
    "module",
    [
        nn.InstanceNorm2d(4),
        nn.InstanceNorm2d(4, affine=True),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True).eval(),
        nn.LocalResponseNorm(2),
        nn.Unfold(2),
        nn.Unfold((3, 2), padding=(1, 0), stride=2),
    ],
    ids=str,
)
def test_layers_on_images(module):
    _check(module, (torch.randn(2, 4, 6, 6),), (torch.randn(3, 4, 8, 7),), (IMAGE,))


def test_batches_of_two_arguments_that_a_view_makes_equal():
    layer = nn.TransformerDecoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
    example, other = (torch.randn(2, 6, 4), torch.randn(2, 7, 4)), (torch.randn(3, 5, 4), torch.randn(3, 9, 4))
    program = _check(layer, example, other, (ALL, ALL))
    with pytest.raises((AssertionError, RuntimeError)):
        program.module()(torch.randn(3, 5, 4), torch.randn(2, 9, 4))


FLOATS = {
    "filled": lambda x: x + torch.zeros(x.shape[1]).fill_(x.shape[1] / 2)[:, None],
    "full": lambda x: x * torch.full((4,), x.shape[0] / 4),
    "square root": lambda x: x / torch.sym_sqrt(x.shape[1]),
    "root": lambda x: x / x.shape[1] ** 0.5 + x.shape[0] ** -1,
    "clamped": lambda x: x.clamp(max=x.shape[1] / 10).masked_fill(x > 0, x.shape[1] * 0.5),
    "weighted": lambda x: torch.add(x, x, alpha=1 / x.shape[1]).lerp(x, 1 / x.shape[0]),
    "power": lambda x: x.abs() ** (1 / x.shape[1]),
    "leaky": lambda x: nn.functional.leaky_relu(x, 1 / x.shape[1]),
    "tensor": lambda x: x * torch.tensor(x.shape[1]) + torch.tensor([x.shape[0], 2]).sum(),
    "table": lambda x: x[:, :2, :2] + torch.tensor([[x.shape[0], 1.5], [0, x.shape[1] / 2]], dtype=torch.float64),
}


@pytest.mark.parametrize("name", FLOATS)
def test_numbers_that_follow_from_sizes(name):
    _check(Calls(FLOATS[name]), (torch.randn(2, 6, 4),), (torch.randn(3, 5, 4),), (ALL,))


def test_a_size_that_is_a_multiple():
    def windows(x):
        return x.view(x.shape[0], x.shape[1] // 2, 2, 4).transpose(1, 2).flatten(0, 1)

    sizes = {0: Dim.DYNAMIC, 1: 2 * Dim("half", min=2)}
    program = _check(Calls(windows), (torch.randn(2, 6, 4),), (torch.randn(3, 8, 4),), (sizes,))
    with pytest.raises((AssertionError, RuntimeError)):
        program.module()(torch.randn(3, 7, 4))


def test_a_root_of_the_math_module_fixes_the_size():
    with pytest.raises(torch._dynamo.exc.UserError, match="specialized it to be a constant"):
        export(Calls(lambda x: x / math.sqrt(x.shape[1])), (torch.randn(2, 6, 4),), dynamic_shapes=(ALL,))


def test_whole_numbers_that_are_floating():
    """1.0 * n is no whole number, though no symbol says so."""

    def calls(x):
        n = x.shape[1] * 1.0
        return torch.full((x.shape[1],), n), x.long() + n, torch.where(x > 0, x.long(), n)

    program = export(Calls(calls), (torch.ones(2, 6, 4),), dynamic_shapes=(ALL,))
    for way in (program, program.run_decompositions()):
        for made, meant in zip(way.module()(x := torch.ones(3, 5, 4)), calls(x), strict=True):
            assert made.dtype == meant.dtype == torch.float32 and torch.equal(made, meant)
