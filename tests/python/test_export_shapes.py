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


def exported(function, *args, **shapes):
    class Calls(nn.Module):
        def forward(self, x):
            return function(x)

    return export(Calls(), args, dynamic_shapes={"x": shapes["x"]} if shapes else None)


def operators(program):
    return [str(node.target) for node in program.graph.nodes if str(node.target).startswith("aten.")]


PIECES = [
    (lambda x: x.chunk(2), [7, 8], "aten.chunk.default"),
    (lambda x: torch.chunk(x, 3, dim=0), [6, 9, 17], "aten.chunk.default"),
    (lambda x: x.split(4), [5, 8], "aten.split.Tensor"),
    (lambda x: x.split(split_size=x.shape[0] // 2, dim=0), [8, 12], "aten.split.Tensor"),
    (lambda x: x.split([2, x.shape[0] - 2]), [5, 9], "aten.split_with_sizes.default"),
    (lambda x: x.tensor_split(3, 0), [9, 12], "aten.tensor_split.sections"),
    (lambda x: (nn.functional.glu(x, 0),), [8, 10], "aten.glu.default"),
]


@pytest.mark.parametrize("dynamic", [Dim.DYNAMIC, Dim.AUTO], ids=str)
@pytest.mark.parametrize("function, sizes, name", PIECES)
def test_pieces_of_an_open_size(function, sizes, name, dynamic):
    """torch 2.13 exports these by the same operators, and runs them for these sizes."""
    program = exported(function, torch.randn(6, 4), x={0: dynamic})
    assert name in operators(program) and "aten.slice.Tensor" not in operators(program)
    for size in sizes:
        x = torch.randn(size, 4)
        expected, found = function(x), program.module()(x)
        assert len(expected) == len(found) and all(map(torch.equal, expected, found)), size


def test_pieces_hold_for_their_guards_alone():
    glu = exported(PIECES[-1][0], torch.randn(6, 4), x={0: Dim.DYNAMIC})
    with pytest.raises(AssertionError, match="Guard failed"):
        glu.module()(torch.randn(7, 4))
    split = exported(lambda x: x.split(4), torch.randn(6, 4), x={0: Dim.DYNAMIC})
    with pytest.raises(AssertionError, match="Guard failed"):
        split.module()(torch.randn(9, 4))
    for function in (lambda x: x.split(4), lambda x: nn.functional.glu(x, 0), lambda x: x.chunk(3)):
        with pytest.raises(Exception, match="Constraints violated"):
            exported(function, torch.randn(6, 4), x={0: Dim("n")})
    three = exported(lambda x: x.chunk(3), torch.randn(8, 4), x={0: Dim("n", min=7)}).module()
    assert [len(each) for each in three(torch.ones(13, 4))] == [5, 5, 3]
    for wrong in (lambda x: x.chunk(0), lambda x: x.split(-1), lambda x: x.split([1, 2])):
        with pytest.raises(RuntimeError):
            exported(wrong, torch.randn(6, 4), x={0: Dim.DYNAMIC})


def test_lists_of_lengths_and_numbers_of_pieces_are_told_apart():
    program = exported(lambda x: (*x.split([1, 5]), *x.tensor_split(3, 1), *x.tensor_split((1, 2))), torch.randn(6, 4))
    assert operators(program) == [
        "aten.split_with_sizes.default", "aten.tensor_split.sections", "aten.tensor_split.indices",
    ]  # fmt: skip
    x = torch.randn(6, 4)
    expected = (*x.split([1, 5]), *x.tensor_split(3, 1), *x.tensor_split((1, 2)))
    assert all(map(torch.equal, program.module()(x), expected))


def test_graphs_for_open_sizes_have_pieces():
    from mica._dynamo.testing import CompileCounter

    counter = CompileCounter()
    turned = torch.compile(lambda x: torch.cat([each * 2 for each in x.chunk(2)[::-1]]), backend=counter, dynamic=True)
    for size in (6, 9, 10):
        x = torch.arange(float(size))
        assert torch.equal(turned(x), 2 * x.roll(size // 2))
    assert counter.frame_count == 1


def test_conversions_by_types_of_python_and_by_names():
    def f(x):
        return (
            (x * 5).to(bool).to(float).to(int) + 8, x.to(dtype=float), torch.zeros(2, dtype=int) + x.to(int)[:2],
            x.type(torch.float64), x.type("torch.DoubleTensor"), x.type_as(torch.ones(1, dtype=torch.float64)),
        )  # fmt: skip

    x = torch.randn(5)
    for shapes in ({}, {"x": {0: Dim("n", min=3)}}):
        program = exported(f, x, **shapes)
        found = program.module()(x)
        assert [each.dtype for each in found] == [each.dtype for each in f(x)] and all(map(torch.equal, found, f(x)))
        called = [each for each in operators(program) if each != "aten._assert_tensor_metadata.default"]
        assert called[1:4] == ["aten.to.dtype"] * 3 and "aten.zeros.default" in operators(program)


def test_sizes_of_arguments_that_are_one_tuple():
    class Any(torch.nn.Module):
        def forward(self, *args):
            return args[0] * 2

    n = Dim("n", min=4)
    program = export(Any(), (torch.randn(6, 4),), dynamic_shapes=(({0: n},),))
    assert program.module()(torch.ones(9, 4)).shape == (9, 4)
    with pytest.raises(torch._dynamo.exc.UserError, match=r"`inputs\[0\]` is a <class 'tuple'>, but"):
        export(Any(), (torch.randn(6, 4),), dynamic_shapes=({0: n},))


def test_a_part_of_a_fixed_size_up_to_an_open_one():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("places", torch.arange(64).expand(1, -1))

        def forward(self, x):
            n = x.shape[1]
            return x + self.places[:, :n] + self.places[:, 2 : n + 2] + self.places[0, -n:]

    x = torch.zeros(2, 6)
    program = torch.export.export(Positions(), (x,), dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},))
    for each in (program, program.run_decompositions()):
        for n in (6, 9, 62):
            assert torch.equal(each.module()(torch.zeros(3, n)), Positions()(torch.zeros(3, n)))
    with pytest.raises(AssertionError, match=r"size\(\)\[1\] <= 62"):
        program.module()(torch.zeros(3, 63))
    with pytest.raises(Exception, match=r"(?s)Constraints violated \(n\).*n = Dim\('n', max=62\)"):
        torch.export.export(Positions(), (x,), dynamic_shapes=({1: Dim("n")},))


def test_a_place_of_data_and_an_open_length():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(2, 16))

        def forward(self, x, place):
            start = place.item()
            torch._check(start >= 0)
            torch._check(start + x.size(1) <= 16)
            self.kept.narrow(1, start, x.size(1)).copy_(x)
            return self.kept * 2

    program = torch.export.export(
        Cache(), (torch.ones(2, 3), torch.tensor(3)), dynamic_shapes=({1: Dim("t", max=8)}, None)
    )
    made = program.module()(torch.ones(2, 2), torch.tensor(13))
    assert made[0].tolist() == [0.0] * 13 + [2.0, 2.0, 0.0]
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        program.module()(torch.ones(2, 5), torch.tensor(13))


def test_numbers_that_differ_between_examples_are_open():
    class Scaled(nn.Module):
        def forward(self, x, k):
            return x * k

    more = torch.export.AdditionalInputs()
    more.add((torch.ones(4), 3))
    more.add((torch.ones(7), 5))
    program = torch.export.export(Scaled(), (torch.ones(3), 2), dynamic_shapes=more)
    assert program.module()(torch.ones(9), 6).tolist() == [6.0] * 9


def test_fields_name_inputs():
    import collections
    import dataclasses

    Pair = collections.namedtuple("Pair", "a b")

    @dataclasses.dataclass
    class Point:
        x: torch.Tensor
        y: object

    torch.export.register_dataclass(Point, serialized_type_name="test_export_shapes.Point")

    class Sum(nn.Module):
        def forward(self, pair, point):
            return pair.a + pair.b + point.x + point.y[0]

    given = (Pair(torch.ones(2), torch.ones(2)), Point(torch.ones(2), [torch.ones(2)]))
    program = torch.export.export(Sum(), given)
    assert program.graph_signature.user_inputs == ("pair_a", "pair_b", "point_x", "point_y_0")
    assert program.module()(*given).tolist() == [4.0, 4.0]


def test_what_examples_leave_open_is_narrowed_by_the_program():
    class First(nn.Module):
        def forward(self, x, pair):
            return (x + pair[0])[:3]

    more = AdditionalInputs()
    more.add((torch.ones(5), [torch.ones(5)]))
    program = export(First(), (torch.ones(4), [torch.ones(4)]), dynamic_shapes=more)
    assert program.module()(torch.ones(9), [torch.ones(9)]).tolist() == [2.0] * 3
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.ones(9), [torch.ones(8)])
    more.add((torch.ones(2), [torch.ones(2)]))
    with pytest.raises(AssertionError, match="Guard failed"):
        export(First(), (torch.ones(4), [torch.ones(4)]), dynamic_shapes=more)
