"""Functions that conditions, loops and scans call: those that torch refuses, since a graph of them could not be made."""

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import TorchRuntimeError, UncapturedHigherOrderOpError
from mica._higher_order_ops import map as torch_map
from mica._higher_order_ops import scan, while_loop
from mica.export import export
from mica.fx.experimental.proxy_tensor import make_fx

YES = torch.tensor(True)
ALIAS, MUTATION = "do not support aliasing", "do not support input mutation"


class _Module(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def _in_a_program(function):
    return lambda *args: export(_Module(function), args)


def _everywhere(function, words):
    """The function as it is, compiled, and in both kinds of graphs. Where it is captured for a backend, a change in place has
    not happened yet as it returns."""
    captured = [] if words == MUTATION else [torch.compile(function, backend="eager", fullgraph=True)]
    return function, torch.compile(function), make_fx(function), _in_a_program(function), *captured


@pytest.mark.parametrize(
    ("branch", "words"),
    [
        (lambda x: x, ALIAS),
        (lambda x: (lambda y: (y, y.view(-1)))(x + 1), ALIAS),
        (lambda x: x.add_(1) * 2, MUTATION),
    ],
)
def test_branches(branch, words):
    def function(x):
        return torch.cond(YES, branch, branch, (x + 0,))

    for each in _everywhere(function, words):
        with pytest.raises(UncapturedHigherOrderOpError, match=words):
            each(torch.ones(3))


def test_without_gradients_branches_may_change_and_return_operands():
    x = torch.ones(3)
    with torch.no_grad():
        assert torch.cond(YES, lambda x: x.add_(1), lambda x: x + 2, (x,)).tolist() == [2.0] * 3
        assert torch.cond(YES, lambda x: x, lambda x: x + 2, (x,)).tolist() == [2.0] * 3


def test_branches_of_other_kinds():
    def nests(x):
        return torch.cond(YES, lambda x: (x + 1,), lambda x: [x + 1], (x,))

    def dtypes(x):
        return torch.cond(YES, lambda x: x + 1, lambda x: x.long() + 1, (x,))

    for make in (make_fx, _in_a_program):
        with pytest.raises(UncapturedHigherOrderOpError, match="the same pytree structure"):
            make(nests)(torch.ones(3))
        with pytest.raises(
            TorchRuntimeError,
            match="When merging two branches' output in torch.cond.*the same dtypes and numbers of dimensions",
        ):
            make(dtypes)(torch.ones(3))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda i, x: (i + 1, x.double() * 2), "to have same metadata"),
        (lambda i, x: (i + 1, torch.cat([x, x])), "to have same metadata"),
        (lambda i, x: (i + 1,), "to have same number of outputs"),
        (lambda i, x: (i + 1, x), ALIAS),
        (lambda i, x: (i.add_(1), x + 1), MUTATION),
    ],
)
def test_bodies_of_loops(body, words):
    def function(i, x):
        return while_loop(lambda i, x: i < 3, body, (i + 0, x))

    for each in _everywhere(function, words):
        with pytest.raises(UncapturedHigherOrderOpError, match=words):
            each(torch.tensor(0), torch.ones(3))


def test_conditions_of_loops():
    for cond in (lambda x: x < 3, lambda x: x.sum().long()):
        with pytest.raises(RuntimeError, match="must return a boolean scalar tensor"):
            while_loop(cond, lambda x: (x + 1,), (torch.ones(3),))
    for each in _everywhere(lambda x: while_loop(lambda x: True, lambda x: (x + 1,), (x,)), ""):
        with pytest.raises(UncapturedHigherOrderOpError, match="Infinite loop detected"):
            each(torch.ones(3))
    assert while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, torch.ones(1)))[0] == 3
    with pytest.raises(RuntimeError, match="only consists of tensor or int leaves"):
        while_loop(lambda x, y: x < 3, lambda x, y: (x + 1, y), (torch.tensor(1), 2.0))


def test_what_a_loop_returns():
    x = torch.tensor(1)
    assert while_loop(lambda x: x < 3, lambda x: x + 1, (x,)).item() == 3
    assert make_fx(lambda x: while_loop(lambda x: x < 3, lambda x: x + 1, (x,)))(x)(x).item() == 3
    assert isinstance(while_loop(lambda x: x < 3, lambda x: [x + 1], (x,)), list)


def test_a_loop_without_steps_returns_copies():
    def function(x):
        return while_loop(lambda x: x < 0, lambda x: (x + 1,), (x,))

    x = torch.tensor(1)
    for each in (function, make_fx(function)(x), export(_Module(function), (x,)).module()):
        each(x)[0].add_(5)
        assert x.item() == 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x, ALIAS),
        (lambda x: x.add_(1) * 2, MUTATION),
        (lambda x: 3, "torch.Tensor type"),
    ],
)
def test_functions_of_maps(function, words):
    for each in _everywhere(lambda xs: torch_map(function, xs + 0), words):
        with pytest.raises(UncapturedHigherOrderOpError, match=words):
            each(torch.ones(3, 2))


def test_maps():
    with pytest.raises(RuntimeError, match="can only consist of tensors"):
        torch_map(lambda pair: pair[1], (3, torch.ones(2)))
    made, nothing = torch_map(lambda x: (x + 1, None), torch.ones(2))
    assert (made.tolist(), nothing) == ([2.0, 2.0], None)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda c, x: (c + x.double(), x + 1), "to have same metadata"),
        (lambda c, x: (torch.cat([c, x]), x + 1), "to have same metadata"),
        (lambda c, x: ((c + x, c * x), x + 1), "to have same number of outputs"),
        (lambda c, x: (c + x, c), ALIAS),
        (lambda c, x: (c.add_(x) * 1, x + 1), MUTATION),
        (lambda c, x: c + x.sum(), "has to return a pair"),
        (lambda c, x: (c + x, 1), "torch.Tensor type"),
    ],
)
def test_steps_of_scans(step, words):
    for each in _everywhere(lambda init, xs: scan(step, init + 0, xs), words):
        with pytest.raises(UncapturedHigherOrderOpError, match=words):
            each(torch.ones(2), torch.ones(3, 2))


def test_arguments_of_scans():
    def step(carry, x):
        return carry + 1, x + 1

    xs = torch.ones(3, 2)
    for init in (1.0, (torch.zeros(2), 1)):
        with pytest.raises(RuntimeError, match="All init leaves must be a Tensor"):
            scan(step, init, xs)
    with pytest.raises(RuntimeError, match="requires init leaves"):
        scan(step, [], xs)
    with pytest.raises(RuntimeError, match="scan dimension > 0"):
        scan(step, torch.zeros(2), xs[:0])
    with pytest.raises(RuntimeError, match="Dim must be an int"):
        scan(step, torch.zeros(2), xs, dim=1.0)
    with pytest.raises(RuntimeError, match="Reverse must be a bool"):
        scan(step, torch.zeros(2), xs, reverse=1)
    init = torch.zeros(2)
    assert scan(step, init, []) == (init, [])
    carry, _ = scan(lambda c, x: ([c + x], x + 1), torch.zeros(2), xs)
    assert carry[0].tolist() == [3.0, 3.0]
