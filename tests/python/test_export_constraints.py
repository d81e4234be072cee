"""What torch.export says of dynamic_shapes that do not fit the inputs or the program. The words are torch 2.13's."""

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import UserError
from mica.export import Dim, export
from mica.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes as refine
from mica.fx.experimental.symbolic_shapes import ConstraintViolationError


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None):
        return self.function(x) if y is None else self.function(x, y)


def _x(*shape):
    return torch.ones(shape)


def _double(x, y=None):
    return x * 2


n, m = Dim("n"), Dim("m")
MISMATCH = "Detected mismatch between the structure of `inputs` and `dynamic_shapes`: "
PAIR = (_x(3, 4), _x(3, 4))
NESTED = [
    (PAIR, ({0: n},), MISMATCH + "`inputs` has 2 elements, but `dynamic_shapes` has 1 elements"),
    (PAIR, {"x": {0: n}}, "top-level keys must be the arg names ['x', 'y'] of `inputs`, but here they are ['x']"),
    (PAIR, {"x": {0: n}, "z": None}, "of `inputs`, but here they are ['x', 'z']"),
    (PAIR, ({0: n}, 3), "Unexpected input tensor shape 3 specified at `dynamic_shapes[1]` (expected either a list/tuple"),
    (PAIR, ({0: "a"}, None), "Unexpected dimension mapped to index 0 in input tensor shape {0: 'a'} specified at `dynamic_shapes[0]`"),
    (PAIR, ((n, "a"), None), "Unexpected dimension #1 in input tensor shape"),
    (PAIR, ((n, None, None), None), "to have the same length as the actual tensor shape torch.Size([3, 4]) (expected 2, but got 3 instead)"),
    (PAIR, ({5: n}, None), "Unexpected index 5 in input tensor shape"),
    (([_x(3), _x(3)],), ([{0: n}],), MISMATCH + "`inputs[0]` has 2 elements, but `dynamic_shapes[0]` has 1 elements"),
    (([_x(3), _x(3)],), ({0: n},), MISMATCH + "`inputs[0]` is a <class 'list'>, but `dynamic_shapes[0]` is a <class 'dict'>"),
    (({"a": _x(3)},), ({"b": {0: n}},), MISMATCH + "`inputs[0]` has keys ['a'], but `dynamic_shapes[0]` has keys ['b']"),
    ((_x(3), "text"), (None, {0: n}), "to non-tensor type <class 'str'> at `inputs[1]` (expected None)"),
    (PAIR, 3, "dynamic_shapes are a dict, a list or a tuple"),
    (PAIR, ({0: Dim("n", min=2)}, {0: Dim("n", max=9)}), "Found different definitions Dim('n', min=2) and Dim('n', min=0, max=9)"),
    ((_x(7),), ({0: 2 * n},), "to be of the form 2*n, where n is an integer"),
    (PAIR, ({0: n}, {0: n + 1}), "to be equal to n + 1"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "shapes", "words"), NESTED)
def test_shapes_that_do_not_fit_the_inputs(args, shapes, words):
    with pytest.raises(UserError) as error:
        export(Call(_double), args, dynamic_shapes=shapes)
    assert words in str(error.value)


def test_numbers_that_do_not_fit_the_example():
    with pytest.raises(ConstraintViolationError, match="Static shape constraint of 5 does not match input size of 4"):
        export(Call(_double), (_x(3, 4),), dynamic_shapes=({0: n, 1: 5},))
    with pytest.raises(ConstraintViolationError, match=r"3 not in range \[5, int_oo\]"):
        export(Call(_double), (_x(3, 4),), dynamic_shapes=({0: Dim("n", min=5)},))
    with pytest.raises(
        ValueError, match=r"Dim.DYNAMIC\(min=None, max=None\), but export 0/1 specialized due to hint of 1"
    ):
        export(Call(_double), (_x(1, 4),), dynamic_shapes=({0: Dim.DYNAMIC},))


MARKED = "- You marked {} as dynamic but your code specialized it to be a constant ({}). If you're using mark_dynamic, either remove"
RELIED = [
    (lambda x: x + torch.ones(4), (_x(3, 4),), ({1: n},), [MARKED.format("n", 4), "Suggested fixes:\n  n = 4"]),
    (lambda x: x + torch.ones(4), (_x(3, 4),), ({1: Dim.DYNAMIC},), [MARKED.format("L['x'].size()[1]", 4)]),
    (_double, (_x(1, 4),), ({0: n},), [MARKED.format("n", 1), "  n = 1"]),
    (lambda x: x if x.shape[0] > 5 else -x, (_x(8),), ({0: n},),
     ["- Not all values of n = L['x'].size()[0] in the specified range satisfy the generated guard "
      "6 <= L['x'].size()[0] and L['x'].size()[0] <= IntInfinity()", "  n = Dim('n', min=6)", "test_export_constraints.py"]),
    (lambda x: x if x.shape[0] <= 10 else -x, (_x(8),), ({0: Dim("n", min=2, max=64)},),
     ["in the specified range n <= 64 satisfy the generated guard 2 <= L['x'].size()[0] and L['x'].size()[0] <= 10",
      "  n = Dim('n', max=10)"]),
    (lambda x, y: x + y, (_x(8), _x(8)), ({0: n}, {0: m}),
     ["- The values of m = L['y'].size()[0] and n = L['x'].size()[0] must always be equal.", "  m = n"]),
    (lambda x: x if x.shape[0] % 2 == 0 else -x, (_x(8),), ({0: n},), ["  _n = Dim('_n')\n  n = 2*_n"]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args", "shapes", "words"), RELIED)
def test_programs_that_rely_on_more(function, args, shapes, words):
    with pytest.raises(UserError, match=r"^Constraints violated \(") as error:
        export(Call(function), args, dynamic_shapes=shapes)
    for each in words:
        assert each in str(error.value)
    if "Suggested fixes" in str(error.value) and function is not _double:
        better = refine(str(error.value), shapes)
        assert better != shapes
        program = export(Call(function), args, dynamic_shapes=better)
        assert torch.equal(program.module()(*args), function(*args))


def test_several_violations_are_told_at_once():
    def function(x, y):
        return (x if x.shape[0] > 5 else -x).sum() + (y if y.shape[0] < 9 else -y).sum()

    with pytest.raises(UserError) as error:
        export(Call(function), (_x(8), _x(7)), dynamic_shapes=({0: n}, {0: m}))
    text = str(error.value)
    assert text.startswith("Constraints violated (m, n)!")
    fixed = refine(text, ({0: n}, {0: m}))
    assert (fixed[0][0].min, fixed[0][0].max) == (6, None)
    assert (fixed[1][0].min, fixed[1][0].max) == (0, 8)


def test_refining_other_texts():
    shapes = {"x": {0: n, 1: 2 * n + 1}, "y": [(m, None)]}
    text = (
        "Constraints violated!\nSuggested fixes:\n  n = 3*_n - 1\n  _n = Dim('_n', min=2, max=7)\n  m = 4\n\nand so on"
    )
    made = refine(text, shapes)
    assert str(made["x"][0]) == "3*_n - 1"
    assert str(made["x"][1]) == "6*_n - 1"
    assert made["x"][0].root.max == 7
    assert made["y"] == [(4, None)]
    with pytest.raises(ValueError, match="no suggested fixes"):
        refine("nothing", shapes)


def test_open_numbers_may_be_any():
    program = export(Call(lambda x, y: x * y), (_x(8), 4), dynamic_shapes=({0: n}, Dim.DYNAMIC))
    for number in (7, 1, 0):
        assert program.module()(_x(3), number).tolist() == [number] * 3
    program = export(Call(lambda x, y: x * y), (_x(8), 1), dynamic_shapes=({0: n}, Dim.DYNAMIC))
    assert program.module()(_x(3), 5).tolist() == [5.0] * 3
