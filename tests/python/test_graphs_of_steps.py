"""Steps of map and scan where a graph has their gradients, and where the sizes of what is carried are open."""

import mica as torch
import pytest
from mica import nn
from mica._functorch.aot_autograd import aot_function
from mica._higher_order_ops.map import map as map_steps
from mica._higher_order_ops.scan import scan
from mica.export import Dim, export
from mica.utils._pytree import tree_leaves

SCALE = torch.randn(4, requires_grad=True)

PROGRAMS = {
    "map": (lambda x, v: map_steps(lambda t, v: (t * v).relu(), x, v), (4,)),
    "map of a tensor from outside": (lambda x, v: map_steps(lambda t: (t * SCALE).sin(), x) + v, (4,)),
    "scan": (lambda x, w: scan(lambda c, t: (torch.tanh(c @ w + t), c * 2), torch.zeros(4), x), (4, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_steps(name):
    function, shape = PROGRAMS[name]
    given = (torch.randn(5, 4, requires_grad=True), torch.randn(*shape, requires_grad=True))

    def gradients(called):
        return torch.autograd.grad(sum(each.sum() for each in tree_leaves(called(*given))), given)

    ours, theirs = gradients(aot_function(function, lambda graph, example: graph.forward)), gradients(function)
    torch.testing.assert_close(ours, theirs)


def test_a_carry_of_an_open_size_that_has_to_be_a_number():
    class Program(nn.Module):
        def forward(self, x, w):
            return PROGRAMS["scan"][0](x, w)

    example, w = torch.randn(5, 4), torch.randn(4, 4)
    program = export(Program(), (example, w), dynamic_shapes=([Dim.AUTO] * 2, [Dim.AUTO] * 2))
    x = torch.randn(7, 4)
    for made in (program, program.run_decompositions()):
        torch.testing.assert_close(made.module()(x, w), Program()(x, w))
