"""Sizes that are a number less an open size, as where a sequence is filled up to a length. Upper bounds are those that torch 2.13
finds, but for sizes of 0 and 1, which torch leaves out in some places."""

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import UserError
from mica.export import Dim, export
from mica.fx.experimental.proxy_tensor import make_fx

TABLE = torch.arange(48.0).view(16, 3)

CASES = {
    "zeros": lambda x: torch.zeros(16 - x.shape[0]),
    "new_full": lambda x: x.new_full((16 - x.shape[0], 2), 3.0),
    "repeat": lambda x: x[:1].repeat(16 - x.shape[0], 1),
    "expand": lambda x: x[:1].expand(16 - x.shape[0], -1),
    "arange": lambda x: torch.arange(x.shape[0], 16),
    "arange down": lambda x: torch.arange(16, x.shape[0], -1),
    "arange of floats": lambda x: torch.arange(x.shape[0], 16, dtype=torch.float64),
    "filled up": lambda x: torch.cat([x, torch.zeros(16 - x.shape[0], 3)]) + TABLE,
    "filled up, viewed": lambda x: torch.cat([x, x.new_zeros(16 - x.shape[0], 3)]).view(4, 4, 3).sum(1),
    "mask": lambda x: torch.cat([torch.ones(x.shape[0]), torch.zeros(16 - x.shape[0])]).bool()[:, None] * TABLE,
    "cut off again": lambda x: torch.cat([x, torch.zeros(16 - x.shape[0], 3)])[: x.shape[0]],
    "product": lambda x: torch.ones(16 - x.shape[0], 3) @ TABLE.t(),
    "same twice": lambda x: torch.zeros(16 - x.shape[0]) + torch.ones(16 - x.shape[0]),
    "two": lambda x: torch.ones(16 - x.shape[0], 20 - x.shape[0]).sum(0) + torch.ones(20 - x.shape[0]),
    "its size": lambda x: torch.zeros(16 - x.shape[0]).shape[0] + x,
}


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_of_a_number_stays_open(name):
    function = CASES[name]
    program = export(Calls(function), (torch.randn(6, 3),), dynamic_shapes=(({0: Dim.DYNAMIC},),))
    assert [tuple(ends) for ends in program.range_constraints.values()] == [(2, 16)]
    graph = make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)(torch.randn(6, 3))
    for size in (2, 5, 15, 16):
        x = torch.randn(size, 3)
        for found in (program.module()(x), graph(x)):
            wanted = function(x)
            assert found.equal(wanted) and found.dtype is wanted.dtype
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.randn(17, 3))


def test_a_difference_of_two_open_sizes():
    def fill(x, y):
        return torch.cat([x, torch.zeros(y.shape[0] - x.shape[0], 3)]) + y

    places = ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    program = export(Calls(fill), (torch.randn(6, 3), torch.randn(9, 3)), dynamic_shapes=(places,))
    x, y = torch.randn(4, 3), torch.randn(11, 3)
    assert program.module()(x, y).equal(fill(x, y))


def test_a_name_that_does_not_say_the_bound_is_refused():
    with pytest.raises(UserError, match=r"n = Dim\('n', max=16\)"):
        export(Calls(CASES["zeros"]), (torch.randn(6, 3),), dynamic_shapes=(({0: Dim("n")},),))


def test_a_number_that_is_too_small_for_the_example_is_its_error():
    with pytest.raises(RuntimeError, match="negative dimension"):
        export(Calls(CASES["zeros"]), (torch.randn(17, 3),), dynamic_shapes=(({0: Dim.DYNAMIC},),))


def test_what_is_left_for_data():
    class Fill(nn.Module):
        def forward(self, x, mask):
            rows = x[mask]
            torch._check(rows.shape[0] <= 16)
            return torch.zeros(16 - rows.shape[0], 3)

    program = export(Fill(), (torch.randn(8, 3), torch.ones(8) > 0))
    for count in (0, 3, 8):
        assert program.module()(torch.randn(8, 3), torch.arange(8) < count).shape == (16 - count, 3)
