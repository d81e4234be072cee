"""Helpers that backends import by the path which they have in torch."""

import mica as torch
from mica._functorch._aot_autograd.utils import make_boxed_compiler, make_boxed_func
from mica._functorch.aot_autograd import aot_function


def test_a_boxed_function_empties_its_list():
    given = [torch.ones(2), torch.ones(2)]
    assert make_boxed_func(lambda a, b: a + b)(given).tolist() == [2, 2]


def test_a_boxed_compiler():
    compiled = aot_function(lambda x: x.sin() * 2, make_boxed_compiler(lambda graph, inputs: graph.forward))
    x = torch.randn(3, requires_grad=True)
    compiled(x).sum().backward()
    assert x.grad.allclose(2 * x.cos())
