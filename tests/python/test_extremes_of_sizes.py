"""Sizes that min, max and % make of open sizes: what follows from them follows in other calls, too."""

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export
from mica.nn import functional as F


def as_module(function):
    class Calls(nn.Module):
        def forward(self, x):
            return function(x)

    return Calls()


def same(a, b):
    return all(torch.equal(torch.as_tensor(x), torch.as_tensor(y)) for x, y in zip(a, b, strict=True))


def rows(count):
    return torch.arange(4.0 * count).reshape(count, 4)


def used(size):
    made = torch.ones(size)
    return made, made.shape[0], torch.zeros(made.shape[0]), made + 1, torch.cat([made, made])


def padded(x):
    missing = -x.shape[0] % 8
    whole = F.pad(x, (0, 0, 0, missing))
    return whole, whole.shape[0], x * 3 + missing, whole.view(-1, 8, 4).sum(1)


FUNCTIONS = {
    "max": lambda x: used(max(x.shape[0], 8)),
    "min": lambda x: used(min(x.shape[0], 8)),
    "sym_max": lambda x: used(torch.sym_max(x.shape[0], 8)),
    "both": lambda x: used(min(max(x.shape[0], 5), 9)),
    "a remainder": lambda x: (*used(x.shape[0] % 5 + 2), torch.zeros(3) + 3),
    "padding to a multiple": padded,
    "a small quotient": lambda x: used(x.shape[0] // 1024 + 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_follow(name):
    function = FUNCTIONS[name]
    program = export(as_module(function), (rows(10),), dynamic_shapes={"x": {0: Dim.DYNAMIC}})
    for module in (program.module(), program.run_decompositions().module()):
        for count in (10, 4, 7, 12, 16, 2050):
            assert same(module(rows(count)), function(rows(count)))


@pytest.mark.parametrize("name", ["max", "min", "both"])
def test_sizes_of_data_follow(name):
    function = lambda x: FUNCTIONS[name](x[x[:, 0] > 8])  # noqa: E731
    program = export(as_module(function), (rows(10),))
    for module in (program.module(), program.run_decompositions().module()):
        for x in (rows(10), rows(10) + 100, rows(10) - 20):
            assert same(module(x), function(x))


def test_sums_of_several_sizes_follow():
    class Joins(nn.Module):
        def forward(self, x, y):
            joined = torch.cat([x, y, x])
            return joined, joined.shape[0], joined.flatten(), joined.t().reshape(-1).shape[0]

    module = Joins()
    program = export(module, (rows(6), rows(3)), dynamic_shapes={"x": {0: Dim.DYNAMIC}, "y": {0: Dim.DYNAMIC}})
    for x, y in ((6, 3), (3, 2), (2, 9)):
        assert same(program.module()(rows(x), rows(y)), module(rows(x), rows(y)))
