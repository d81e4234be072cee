"""Sizes whose difference a program fixes: found for Dim.AUTO and Dim.DYNAMIC, and said of names. Words are torch 2.13's."""

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import UserError
from mica.export import Dim, export


class Adds(nn.Module):
    def forward(self, x, y):
        return x + y[1:]


def exported(*dims):
    return export(Adds(), (torch.randn(5), torch.randn(6)), dynamic_shapes=tuple({0: dim} for dim in dims))


@pytest.mark.parametrize("hint", [Dim.AUTO, Dim.DYNAMIC])
def test_a_size_follows_from_another_one(hint):
    program = exported(hint, hint)
    assert {str(key): tuple(ends) for key, ends in program.range_constraints.items()} == {
        "s77": (2, None),
        "s77 + 1": (3, None),
    }
    assert program.module()(torch.randn(8), torch.randn(9)).shape == (8,)
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] == -1 \+ y.size\(\)\[0\]"):
        program.module()(torch.randn(8), torch.randn(8))


def test_names_of_related_sizes():
    x = Dim("dimx", min=3, max=6)
    with pytest.raises(UserError) as error:
        exported(x, Dim("dimy", min=4, max=7))
    assert error.value.msg == (
        "Constraints violated (dimy)!\n"
        "  - The values of dimy = L['y'].size()[0] must always be related to the values of dimx = L['x'].size()[0] by "
        "dimy = dimx + 1.\n"
        "Suggested fixes:\n"
        "  dimy = dimx + 1"
    )
    shapes = ({0: x}, {0: Dim("dimy", min=4, max=7)})
    refined = torch.export.dynamic_shapes.refine_dynamic_shapes_from_suggested_fixes(error.value.msg, shapes)
    assert exported(refined[0][0], refined[1][0]).module()(torch.randn(4), torch.randn(5)).shape == (4,)
    with pytest.raises(UserError, match=r"Expected input L\['y'\].* to be equal to 2\*dimx, where dimx = 5, but got 6"):
        exported(x, 2 * x)
    with pytest.raises(UserError, match=r"Expected shape\[0\] = 6 of input Tensor to be of the form 2\*dimx \+ 1"):
        exported(Dim("n"), 2 * x + 1)


class Counts(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.count = kind(torch.zeros(2))

    def forward(self, x):
        with torch.no_grad():
            self.count.add_(5)
        return self.count + x


@pytest.mark.parametrize("kind, name", [(nn.Parameter, "PARAMETER_MUTATION"), (nn.Buffer, "BUFFER_MUTATION")])
def test_what_a_decomposed_program_changes(kind, name):
    program = export(Counts(kind), (torch.ones(2),)).run_decompositions()
    assert program.graph_signature.output_specs[0].kind.name == name
    module = program.module()
    with torch.no_grad():  # a parameter that requires a gradient is not written otherwise, in torch neither
        assert [module(torch.ones(2)).tolist() for _ in range(2)] == [[6.0, 6.0], [11.0, 11.0]]


def test_constants_are_not_changed():
    program = export(Counts(lambda tensor: tensor), (torch.ones(2),))
    with pytest.raises(RuntimeError, match="Constant count is mutated in the forward method"):
        program.run_decompositions()
