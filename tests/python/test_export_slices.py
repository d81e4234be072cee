"""Slices between fixed places of sizes that are open, or that only data decide. Ranges are torch 2.13's."""

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import UserError
from mica._subclasses.fake_tensor import FakeTensorMode
from mica.export import Dim, export


class Cuts(nn.Module):
    def __init__(self, cut):
        super().__init__()
        self.cut = cut

    def forward(self, x, mask=None):
        part = self.cut(x if mask is None else x[mask])
        return part, torch.ones(part.shape[0])


@pytest.mark.parametrize(
    "cut, least",
    [
        (lambda x: x[:3], 3),
        (lambda x: x[-3:], 3),
        (lambda x: x.narrow(0, 0, 3), 3),
        (lambda x: x[:4:2], 4),
    ],
)
def test_fixed_places_bound_an_open_size(cut, least):
    model, x = Cuts(cut), torch.randn(5)
    program = export(model, (x,), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert [tuple(ends) for ends in program.range_constraints.values()] == [(least, None)]
    for size in (least, 9):
        found, wanted = program.module()(x := torch.randn(size)), model(x)
        assert [each.shape for each in found] == [each.shape for each in wanted]
    with pytest.raises(AssertionError, match=rf"Guard failed: x.size\(\)\[0\] >= {least}"):
        program.module()(torch.randn(2))  # the sum of a slice of two and ones of three would be wrong, or an error
    with pytest.raises(UserError, match=rf"n = Dim\('n', min={least}\)"):
        export(model, (torch.randn(5),), dynamic_shapes=({0: Dim("n")},))


@pytest.mark.parametrize("cut", [lambda x: x[:3], lambda x: x[1:], lambda x: x[-2:], lambda x: x[1:3]])
def test_slices_of_what_data_choose(cut):
    model, x = Cuts(cut), torch.randn(5)
    program = export(model, (x, torch.ones(5) > 0))
    for count in range(6):
        mask = torch.arange(5) < count
        found, wanted = program.module()(x, mask), model(x, mask)
        assert found[0].equal(wanted[0]) and found[1].equal(wanted[1])


class Adds(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return x + self.weight


@pytest.mark.parametrize("shapes", [None, {"x": {0: Dim.AUTO}}])
@pytest.mark.parametrize("is_fake", [(True, False), (False, True), (True, True)])
def test_fake_tensors_are_exported(is_fake, shapes):
    mode = FakeTensorMode()
    with mode:
        fake, fake_model = torch.randn(4, 4), Adds()
    model, x = fake_model if is_fake[0] else Adds(), fake if is_fake[1] else torch.randn(4, 4)
    program = export(model, (x,), dynamic_shapes=shapes)
    assert program.graph_module.code.count("aten.add.Tensor(x, p_weight)") == 1
    assert not mode.allow_non_fake_inputs
    if not is_fake[0]:
        y = torch.randn(4, 4)
        assert program.module()(y).equal(model(y))


class Makes(nn.Module):
    def forward(self, x, y):
        return y.sum() + torch.ones(x.item(), 5).sum()


def test_a_number_of_data_that_is_a_size_is_not_negative():
    program = export(Makes(), (torch.tensor(1), torch.ones(4, 5)))
    assert tuple(program.range_constraints["u0"]) == (0, None)
    for each in (program, program.run_decompositions()):
        assert each.graph_module.code.count("_assert_scalar.default") == 1
        assert each.module()(torch.tensor(3), torch.ones(4, 5)).item() == 35
        with pytest.raises(RuntimeError, match="Runtime assertion failed for expression u0 >= 0 on node 'ge'"):
            each.module()(torch.tensor(-1), torch.ones(4, 5))


def test_sizes_that_follow_from_others_have_ranges():
    class Adds(nn.Module):
        def forward(self, x, y):
            return x + y[1:]

    n = Dim("n", min=3, max=6)
    program = export(Adds(), (torch.randn(5), torch.randn(6)), dynamic_shapes=({0: n}, {0: n + 1}))
    assert {str(key): tuple(ends) for key, ends in program.range_constraints.items()} == {
        "s77": (3, 6),
        "s77 + 1": (4, 7),
    }
