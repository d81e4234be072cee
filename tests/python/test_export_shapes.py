"""Dynamic sizes said of tensors, and found from further examples."""

import mica as torch
import pytest
from mica import nn
from mica.export import AdditionalInputs, Dim, ShapesCollection, export


class Sum(torch.nn.Module):
    def forward(self, x, pair):
        return x + pair["a"] * pair["b"]


def _inputs(rows):
    return torch.ones(rows, 3), {"a": torch.full((rows, 3), 2.0), "b": torch.tensor(4.0)}


def test_sizes_of_tensors_in_a_collection():
    x, pair = _inputs(4)
    batch, shapes = Dim("batch"), ShapesCollection()
    shapes[x] = (batch, None)
    shapes[pair["a"]][0] = batch
    assert len(shapes) == 2
    found = shapes.dynamic_shapes(Sum(), (x, pair))
    assert found == {"x": (batch, None), "pair": {"a": {0: batch}, "b": None}}
    program = export(Sum(), (x, pair), dynamic_shapes=shapes)
    assert program.module()(*_inputs(7)).tolist() == [[9.0] * 3] * 7


def test_a_tensor_that_is_no_input_is_refused():
    shapes = ShapesCollection()
    shapes[torch.ones(2)] = (Dim("n"),)
    with pytest.raises(ValueError, match="not found in the inputs"):
        shapes.dynamic_shapes(Sum(), _inputs(4))
    x = torch.ones(2)
    shapes[x] = (Dim("n"),)
    with pytest.raises(AssertionError, match="mismatch"):
        shapes[x] = (None,)


def test_sizes_that_differ_between_examples_are_dynamic():
    more = AdditionalInputs()
    more.add(_inputs(5))
    found = more.dynamic_shapes(Sum(), _inputs(4))
    assert found == {"x": (Dim.DYNAMIC, None), "pair": {"a": (Dim.DYNAMIC, None), "b": ()}}
    program = export(Sum(), _inputs(4), dynamic_shapes=more)
    assert program.module()(*_inputs(9)).tolist() == [[9.0] * 3] * 9


def test_examples_that_do_not_fit_are_refused():
    more = AdditionalInputs()
    with pytest.raises(AssertionError, match="must be a tuple"):
        more.add([torch.ones(2)])
    more.add((torch.ones(2, 3, 1), {"a": torch.ones(2, 3), "b": torch.tensor(1.0)}))
    with pytest.raises(ValueError, match="number of dimensions"):
        more.dynamic_shapes(Sum(), _inputs(4))


def test_ranges_of_open_sizes():
    class Places(nn.Module):
        def forward(self, x):
            return x + torch.arange(x.shape[0]), torch.zeros(2 * x.shape[0] + x.shape[1])

    program = export(Places(), (torch.zeros(5, 5),), dynamic_shapes=({0: Dim("n"), 1: Dim("n")},))
    x, flat = program.module()(torch.zeros(7, 7))
    assert x[3].tolist() == list(range(7)) and flat.shape == (21,)


def test_conversions_stay_on_their_device():
    class Wide(nn.Module):
        def forward(self, x):
            return x.double()

    program = export(Wide(), (torch.ones(3, 2),)).run_decompositions()
    assert program.module()(torch.ones(3, 2)).device.type == "cpu"


def test_masks_are_operators():
    class Masked(nn.Module):
        def forward(self, x, i):
            return x[x > 0], x[None, x[:, 0] > 0, i]

    x, i = torch.tensor([[1.0, -2.0], [3.0, 4.0]]), torch.tensor([0, 1])
    program = export(Masked(), (x, i))
    assert "getitem" not in str(program.graph)
    first, second = program.module()(x, i)
    assert first.tolist() == [1, 3, 4] and second.tolist() == x[None, x[:, 0] > 0, i].tolist()
