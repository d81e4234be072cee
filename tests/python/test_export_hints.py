"""Ranges of Dim.DYNAMIC and its like, assertions instead of guards, and what is said of sizes. Texts are torch 2.13's."""

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import UserError
from mica.export import Dim, ShapesCollection, export


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def at_most_32(x, y):
    assert x.shape[0] <= 32
    return x * 2, y * 2


def exported(function, x, y, dims, **options):
    return export(
        Calls(function), (x, y), dynamic_shapes=tuple(dim if dim is None else {0: dim} for dim in dims), **options
    )


V = torch.ones
DYNAMIC, AUTO = Dim.DYNAMIC, Dim.AUTO

CONFLICTS = [
    (at_most_32, 8, 8, (DYNAMIC(min=33), None), "min/max range of [33, None], conflicting with the inferred min/max range of [2, 32]"),
    (at_most_32, 8, 8, (AUTO(min=48, max=62), None), "range of [48, 62], conflicting with the inferred min/max range of [2, 32]"),
    (at_most_32, 4, 4, (Dim.STATIC(min=6, max=8), None), "range of [6, 8], conflicting with the inferred min/max range of [4, 4]"),
    (at_most_32, 32, 4, (DYNAMIC(min=32), None),
     "hint Dim.DYNAMIC(min=32, max=None), but tracing inferred a static shape of 32 for dimension inputs['x'].shape[0]."),
    (at_most_32, 1, 4, (DYNAMIC, None),
     "Dim.DYNAMIC(min=None, max=None), but export 0/1 specialized due to hint of 1 for dimension inputs['x'].shape[0]."),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CONFLICTS)))
def test_hints_that_do_not_fit_the_trace(case):
    function, x, y, dims, words = CONFLICTS[case]
    with pytest.raises(ValueError) as error:
        exported(function, V(x), V(y), dims)
    title = "Found the following conflicts between user-specified ranges and inferred ranges from model tracing:\n- Received "
    assert str(error.value).startswith(title) and words in str(error.value)


def test_all_conflicts_are_said():
    with pytest.raises(ValueError) as error:
        exported(lambda x, y: (x[:30] * 2, y + 1), V(40), V(0), (DYNAMIC(max=20), DYNAMIC))
    assert "[None, 20], conflicting" in str(
        error.value
    ) and "due to hint of 0 for dimension inputs['y'].shape[0]" in str(error.value)


def test_ranges_of_hints_are_those_of_the_program():
    program = exported(at_most_32, V(8), V(8), (DYNAMIC(min=4), AUTO(max=50)))
    assert {name: tuple(ends) for name, ends in program.range_constraints.items()} == {"s77": (4, 32), "s17": (2, 50)}
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] >= 4"):
        program.module()(V(3), V(3))


def test_a_fixed_number_is_said_to_be_that():
    def three(x, y):
        assert x == 3
        return y * x

    module = export(Calls(three), (3, V(4)), dynamic_shapes=(AUTO, None)).module()
    with pytest.raises(AssertionError, match="Guard failed: x == 3"):
        module(4, V(4))


def test_nested_inputs_are_called_by_torchs_names():
    class Nested(nn.Module):
        def forward(self, x, *rest):
            return x["a"][0] + x["a"][1] + rest[0]

    args = ({"a": [V(4), V(4)]}, V(4))
    with pytest.raises(UserError) as error:
        export(Nested(), args, dynamic_shapes=({"a": [{0: Dim("n")}, {0: Dim("m")}]}, ({0: DYNAMIC},)))
    assert "The values of m = L['x']['a'][1].size()[0] and n = L['x']['a'][0].size()[0] must always be equal." in str(
        error.value
    )
    with pytest.raises(UserError, match=r"You marked L\['rest'\]\[0\].size\(\)\[0\] as dynamic"):
        export(Nested(), args, dynamic_shapes=({"a": [None, None]}, ({0: DYNAMIC},)))


# name: (function, sizes of the example, others, sizes that are refused, what the graph says)
RELATIONS = {
    "unequal": (lambda x, y: x + 1 if x.shape[0] != y.shape[0] else x, (8, 7), (9, 4), (4, 4), "Ne(s77, s17)"),
    "powers": (lambda x, y: x * 2 if x.shape[0] ** 2 > y.shape[0] * 3 else y, (8, 8), (4, 4), (2, 9), "s77**2 > 3*s17"),
    "a remainder": (lambda x, y: x * 2 if x.shape[0] % y.shape[0] == 0 else y, (8, 4), (9, 3), (9, 4), "Eq(Mod(s77, s17), 0)"),
    "either": (lambda x, y: x * 2 if (x.shape[0] > 2 * y.shape[0]) | (y.shape[0] > 9) else y, (8, 3), (9, 10), (4, 4),
               "(s77 > 2*s17) | (s17 > 9)"),
}  # fmt: skip


@pytest.mark.parametrize("name", RELATIONS)
def test_relations_may_be_asserted(name):
    function, example, others, refused, text = RELATIONS[name]
    dims = (Dim("n"), Dim("m"))
    with pytest.raises(UserError, match="satisfy the generated guard"):
        exported(function, *map(V, example), dims)
    program = exported(function, *map(V, example), dims, prefer_deferred_runtime_asserts_over_guards=True)
    for each in (program, program.run_decompositions()):
        assert torch.equal(each.module()(*map(V, others)), function(*map(V, others)))
        with pytest.raises(RuntimeError) as error:
            each.module()(*map(V, refused))
        assert str(error.value).startswith(f"Runtime assertion failed for expression {text} on node")


def test_ranges_are_not_asserted():
    with pytest.raises(UserError, match=r"n = Dim\('n', min=6\)"):
        exported(lambda x, y: x if x.shape[0] > 5 else y, V(8), V(8), (Dim("n"), None),
                 prefer_deferred_runtime_asserts_over_guards=True)  # fmt: skip


def test_truths_about_data_are_asserted_one_by_one():
    def checked(x, y):
        a, b, c = x.tolist()
        torch._check((a > 3) & (b <= 8))
        torch._check((c == 2) | (c == 4) | (c == 6))
        return y + a

    module = export(Calls(checked), (torch.tensor([4, 5, 6]), V(2))).module()
    for given, text in ([3, 5, 6], "u0 >= 4"), ([4, 9, 6], "u1 <= 8"), ([4, 5, 5], "Eq(u2, 2) | Eq(u2, 4) | Eq(u2, 6)"):
        with pytest.raises(RuntimeError) as error:
            module(torch.tensor(given), V(2))
        assert f"expression {text} on" in str(error.value)


def test_sizes_of_a_collection():
    x, y = V(8), V(8)
    shapes = ShapesCollection()
    shapes[x] = [Dim.DYNAMIC(max=5)]
    with pytest.raises(
        ValueError, match=r"range of \[None, 5\], conflicting with the inferred min/max range of \[6, int_oo\]"
    ):
        export(Calls(lambda x, y: (x[:6], y)), (x, y), dynamic_shapes=shapes)


def test_marks_of_tensors_leave_their_sizes_open():
    class Sum(torch.nn.Module):
        def forward(self, x, y):
            return x * 2 + y.sum()

    def example(mark, *more):
        x, y = torch.ones(3, 4), torch.ones(5)
        mark(x, 0, *more)
        return x, y

    program = torch.export.export(Sum(), example(torch._dynamo.mark_dynamic))
    assert program.module()(torch.ones(7, 4), torch.ones(5)).shape == (7, 4)
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.ones(7, 4), torch.ones(6))

    class Fixed(Sum):
        def forward(self, x, y):
            return x + torch.ones(3, 4)

    with pytest.raises(UserError, match=r"Constraints violated \(L\['x'\].size\(\)\[0\]\)"):
        torch.export.export(Fixed(), example(torch._dynamo.mark_dynamic))
    fixed = torch.export.export(Fixed(), example(torch._dynamo.maybe_mark_dynamic))
    with pytest.raises(AssertionError, match="Guard failed"):
        fixed.module()(torch.ones(7, 4), torch.ones(5))
