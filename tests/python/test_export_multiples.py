"""Open sizes of inputs that a program needs to be multiples of a number, or products of others. Texts are torch 2.13's."""

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import UserError
from mica.export import Dim, export
from mica.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes as refine


def as_module(function):
    class Calls(nn.Module):
        def forward(self, x, y=None):
            return function(x) if y is None else function(x, y)

    return Calls()


def x_(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def windows(x):
    n, m = x.shape
    return x.view(n // 2, 2, m // 2, 2).transpose(1, 2).reshape(-1, 4).sum(1)


def halves(x):
    first, second = x.chunk(2)
    return first + second, first.shape[0] * torch.ones(2)


# name: (function, sizes of the example, sizes of others, sizes that are refused and what is said)
PROGRAMS = {
    "rows of two": (lambda x: x.view(-1, 2), [(6,)], [(8,), (4,)], [((7,), "x.size()[0] % 2 == 0")]),
    "two rows": (lambda x: x.view(2, -1) * 2, [(6,)], [(10,)], [((7,), "x.size()[0] % 2 == 0")]),
    "half of a size": (lambda x: x.view(x.shape[0] // 2, -1), [(6,)], [(8,)], [((7,), "x.size()[0] % 2 == 0")]),
    "half of a size, by rows": (lambda x: x.view(x.shape[0] // 2, -1), [(6, 3)], [(8, 5), (7, 3)],
                                [((7, 5), "x.size()[1] * x.size()[0] % (x.size()[0] // 2) == 0")]),
    "what is left over": (lambda x: x.view(x.shape[0], -1, 2), [(6, 4)], [(8, 6)], [((8, 7), "x.size()[1] % 2 == 0")]),
    "rows of six": (lambda x: x.view(-1, 6), [(9, 4)], [(6, 4), (4, 6)], [((7, 4), "x.size()[1] * x.size()[0] % 6 == 0")]),
    "four and two": (lambda x: x.view(-1, 4).sum(0) + x.view(-1, 2, 2).sum(0).view(-1), [(8,)], [(16,)],
                     [((18,), "x.size()[0] % 4 == 0")]),
    "there and back": (lambda x: x.view(-1, 4).view(-1) + x, [(8,)], [(16,)], [((9,), "x.size()[0] % 4 == 0")]),
    "windows": (windows, [(8, 6)], [(4, 8)], [((9, 6), "x.size()[0] % 2 == 0")]),
    "halves": (halves, [(6, 4)], [(8, 4)], [((9, 4), "x.size()[0] % 2 == 0")]),
    "unflatten": (lambda x: x.unflatten(0, (-1, 3)), [(6, 4)], [(9, 4)], [((8, 4), "x.size()[0] % 3 == 0")]),
    "a guard": (lambda x: x.view(x.shape[0] - 1, -1), [(3, 4)], [(4, 3)],
                [((4, 5), "x.size()[1] * x.size()[0] % (-1 + x.size()[0]) == 0")]),
}  # fmt: skip


@pytest.mark.parametrize("hint", [Dim.DYNAMIC, Dim.AUTO])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_stay_open(name, hint):
    function, example, others, refused = PROGRAMS[name]
    program = export(
        as_module(function), (x_(*example[0]),), dynamic_shapes=(dict.fromkeys(range(len(example[0])), hint),)
    )
    for module in (program.module(), program.run_decompositions().module()):
        for shape in (*example, *others):
            ours, theirs = (torch.utils._pytree.tree_leaves(f(x_(*shape))) for f in (module, function))
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        for shape, text in refused:
            with pytest.raises(AssertionError) as error:
                module(x_(*shape))
            assert str(error.value) == f"Guard failed: {text}"


@pytest.mark.parametrize("shapes", [({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
                                    ({0: Dim("a"), 1: Dim("b")}, {0: Dim("c")})])  # fmt: skip
def test_a_size_is_a_product_of_others(shapes):
    module = export(as_module(lambda x, y: x.flatten() + y), (x_(4, 3), x_(12)), dynamic_shapes=shapes).module()
    assert torch.equal(module(x_(7, 8), x_(56)), x_(56) * 2)
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[1\] \* x.size\(\)\[0\] == y.size\(\)\[0\]"):
        module(x_(7, 8), x_(55))


def test_equal_sizes_of_which_both_are_multiples():
    function = lambda x, y: (x.view(-1, 2).sum(1), y.view(-1, 3).sum(1), x + y)  # noqa: E731
    module = export(as_module(function), (x_(12), x_(12)), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO})).module()
    assert all(torch.equal(a, b) for a, b in zip(module(x_(18), x_(18)), function(x_(18), x_(18)), strict=True))
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] % 6 == 0"):
        module(x_(14), x_(14))


def test_names_of_multiples():
    def threes(x):
        return x.reshape(-1, 3) if x.shape[0] >= 9 else x

    shapes = ({0: Dim("n")},)
    with pytest.raises(UserError) as error:
        export(as_module(threes), (x_(15),), dynamic_shapes=shapes)
    assert error.value.msg == (
        "Constraints violated (n)!\n"
        "  - Not all values of n = L['x'].size()[0] in the specified range satisfy the generated guard (L['x'].size()[0] % 3) == 0.\n"
        "Suggested fixes:\n  _n = Dim('_n', min=3)\n  n = 3*_n"
    )
    module = export(as_module(threes), (x_(15),), dynamic_shapes=refine(error.value.msg, shapes)).module()
    assert module(x_(12)).shape == (4, 3)
    with pytest.raises(AssertionError, match=r"x.size\(\)\[0\] >= 9"):
        module(x_(6))


def test_names_of_sizes_that_follow():
    with pytest.raises(UserError, match=r"Suggested fixes:\n  m = 4\*n"):
        export(
            as_module(lambda x, y: x.view(-1) + y), (x_(5, 4), x_(20)), dynamic_shapes=({0: Dim("n")}, {0: Dim("m")})
        )
    with pytest.raises(UserError) as error:
        export(as_module(lambda x, y: (x + torch.ones(3), y.view(-1, 2))), (x_(3), x_(8)),
               dynamic_shapes=({0: Dim("n")}, {0: Dim("m")}))  # fmt: skip
    assert "n = 3\n" in error.value.msg and "m = 2*_m" in error.value.msg  # all that is wrong is said at once
