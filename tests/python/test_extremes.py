"""max and min of Python within graphs. The operators are torch 2.13's."""

import builtins
import threading

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def _targets(program):
    return [str(getattr(n.target, "__name__", n.target)) for n in program.graph.nodes if n.op == "call_function"]


OF_TENSORS = [
    (lambda x, y: max(x.sum(), y.sum()), ["sum.default", "sum.default", "maximum.default"]),
    (lambda x, y: min([x.sum(), y.sum()]), ["sum.default", "sum.default", "minimum.default"]),
    (lambda x, y: min(x.sum(), 3), ["sum.default", "clamp.default"]),
    (lambda x, y: max(2.5, x.mean(), y.mean()), ["mean.default", "mean.default", "clamp.default", "maximum.default"]),
    (lambda x, y: max(x, x.cos()), ["cos.default", "maximum.default"]),
]


@pytest.mark.parametrize(("function", "wanted"), OF_TENSORS)
def test_of_tensors(function, wanted):
    x, y = torch.arange(8.0), torch.arange(3.0)
    program = export(Call(function), (x, y))
    assert _targets(program) == wanted
    for a in (x, -x):
        made = program.module()(a, y)
        wanted = torch.maximum(a, a.cos()) if made.dim() else torch.as_tensor(function(a, y), dtype=made.dtype)
        assert torch.equal(made, wanted)
    assert max is builtins.max
    assert type(max) is type(len)


def test_of_open_sizes():
    x, y = torch.arange(8.0), torch.arange(5.0)
    program = export(Call(lambda x, y: x * max(x.shape[0], 4)), (x, y), dynamic_shapes=({0: Dim.DYNAMIC}, None))
    assert "sym_max" in _targets(program)
    assert program.module()(torch.ones(3), y).tolist() == [4.0] * 3
    assert program.module()(torch.ones(9), y).tolist() == [9.0] * 9
    function = lambda x, y: x[: min(x.shape[0], y.shape[0])] * 2  # noqa: E731
    program = export(Call(function), (x, y), dynamic_shapes=({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))
    assert program.module()(x[:6], y[:4]).tolist() == [0.0, 2.0, 4.0, 6.0]


def test_others_are_pythons():
    function = lambda x, y: x * max([1, 3, 2]) + min({4: 1}) + max((2, 1), key=lambda v: -v) + max((), default=7)  # noqa: E731
    program = export(Call(function), (torch.ones(2), torch.ones(2)))
    assert program.module()(torch.ones(2), torch.ones(2)).tolist() == [15.0, 15.0]
    with pytest.raises(ValueError, match="empty"):
        export(Call(lambda x, y: max([])), (torch.ones(2), torch.ones(2)))
    assert type(max) is type(len)


def test_captured_functions_have_one_graph():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    @torch.compile(backend=backend, fullgraph=True)
    def function(x, y):
        return max(x.sum(), y.sum()) + min(x.mean(), 3)

    x, y = torch.arange(8.0), torch.arange(3.0)
    assert function(x, y).item() == 31.0
    assert function(-x, y).item() == -0.5
    assert len(graphs) == 1
    assert type(max) is type(len)


def test_other_threads_see_pythons():
    found, entered, done = [], threading.Event(), threading.Event()

    def other():
        entered.wait(10)
        a, b = torch.tensor(1.0), torch.tensor(2.0)
        found.append(max(a, b) is b)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def function(x, y):
        entered.set()
        done.wait(10)
        return max(x.sum(), y.sum())

    export(Call(function), (torch.ones(2), torch.ones(3)))
    thread.join()
    assert found == [True]
