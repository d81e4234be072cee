"""Gradients of tensors that are read conjugated, in graphs of operators."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function
from mica.fx.experimental.proxy_tensor import make_fx

PROGRAMS = {
    "square": lambda w: (w * w.conj()).real.sum(),
    "product of matrices": lambda w: torch.view_as_real(w.mH @ w).sum(),
    "vecdot": lambda w: torch.linalg.vecdot(w, w).real.sum(),
    "quotient": lambda w: (w / (w.conj() + 2)).abs().sum(),
    "imaginary part": lambda w: (w.conj().imag * w.real).sum(),
    "negated": lambda w: (w.conj().imag.exp() * w.abs()).sum(),
}


def nop(graph, example):
    return graph.forward


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_conjugates(name):
    function = PROGRAMS[name]
    w = torch.randn(3, 4, dtype=torch.complex64, requires_grad=True)
    function(w).backward()
    theirs, w.grad = w.grad, None
    aot_function(function, nop)(w).backward()
    torch.testing.assert_close(w.grad, theirs)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_graphs_compute_with_copies_of_conjugates(mode):
    example, w = (torch.randn(3, dtype=torch.complex64) for _ in range(2))
    graph = make_fx(lambda w: w * w.conj(), tracing_mode=mode)(example)
    torch.testing.assert_close(graph(w), w * w.conj())
