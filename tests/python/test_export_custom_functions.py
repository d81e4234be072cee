"""Exports of programs with functions of autograd, and with hooks of modules and of tensors."""

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export


class AsItIs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


class TwoAsTheyAre(torch.autograd.Function):
    @staticmethod
    def forward(x, y, factor):
        return y, x, x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[2]

    @staticmethod
    def backward(ctx, gy, gx, g):
        return gx + g * ctx.factor, gy, None


class Program(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


PROGRAMS = {
    "of an input": lambda x: AsItIs.apply(x),
    "of a value": lambda x: AsItIs.apply(x * 2) + 1,
    "of two": lambda x: TwoAsTheyAre.apply(x, x.exp(), 3.0),
    "below another": lambda x: AsItIs.apply(AsItIs.apply(x + 1)),
}


@pytest.mark.parametrize("sizes", ["fixed", "open"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_function_returns_as_it_is_belongs_to_the_graph(name, sizes):
    module = Program(PROGRAMS[name])
    shapes = ((({0: Dim.DYNAMIC}),),) if sizes == "open" else None
    program = export(module, (torch.randn(3, 4, requires_grad=True),), dynamic_shapes=shapes)
    assert not program.constants
    x = torch.randn(3 if sizes == "fixed" else 5, 4)
    for made in (program, program.run_decompositions()):
        torch.testing.assert_close(made.module()(x), module(x))


def test_calls_in_a_forward_without_a_context_have_gradients():
    program = export(Program(PROGRAMS["of two"]), (torch.randn(3, 4, requires_grad=True),))
    assert "wrap_with_set_grad_enabled" not in program.graph_module.code
    x = torch.ones(3, 4, requires_grad=True)
    sum(each.sum() for each in program.module()(x)).backward()
    torch.testing.assert_close(x.grad, torch.full((3, 4), 1 + 3.0 + torch.e))


@pytest.mark.parametrize("shapes", [None, ({0: Dim.AUTO},)])
def test_hooks_of_backward_passes_leave_the_graph_whole(shapes):
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    module[2].register_full_backward_hook(lambda module, gi, go: (gi[0] * 3,))
    module[0].register_full_backward_pre_hook(lambda module, go: (go[0] * 2,))
    program = export(module, (torch.randn(3, 4, requires_grad=True),), dynamic_shapes=shapes)
    assert not program.constants
    x = torch.randn(3 if shapes is None else 7, 4)
    torch.testing.assert_close(program.module()(x), module(x))


def test_hooks_of_tensors_do_not_stop_an_export_of_open_sizes():
    def hooked(x):
        y = x * 2
        y.register_hook(lambda g: g * 2)
        return y.sin()

    program = export(Program(hooked), (torch.randn(3, requires_grad=True),), dynamic_shapes=(({0: Dim.DYNAMIC},),))
    x = torch.randn(5)
    torch.testing.assert_close(program.module()(x), (x * 2).sin())


def test_an_export_leaves_buffers_without_history():
    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("sum", torch.zeros(4))

        def forward(self, x):
            self.sum.add_(x.sum(0))
            return self.sum * 2

    module = Adds()
    export(module, (torch.randn(3, 4, requires_grad=True),), dynamic_shapes=({0: Dim.AUTO},))
    assert module.sum.is_leaf and not module.sum.requires_grad and not module.sum.any()
