"""Numbers and sizes that the branches of torch.cond return or read: those that differ are decided by the condition, where
the graph runs, and those of the program around are operands."""

import io

import mica as torch
import pytest
from mica import nn
from mica._higher_order_ops import map as torch_map
from mica._higher_order_ops import scan, while_loop
from mica.export import Dim, export, load, save
from mica.fx.experimental.proxy_tensor import make_fx


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


X = torch.ones(3, 3) * torch.arange(3.0)[:, None]

FUNCTIONS = {
    "constants": lambda x: x[torch.cond(x.sum() > 3, lambda: 0, lambda: 1, ())],
    "equal constants": lambda x: x[torch.cond(x.sum() > 3, lambda: 2, lambda: 2, ())],
    "beside a tensor": lambda x: torch.mul(*torch.cond(x.sum() > 3, lambda x: (x + 1, x.shape[0]), lambda x: (x - 1, 7), (x,))),
    "of data": lambda x: torch.cond(x.sum() > 3, lambda x: x.sum().int().item(), lambda x: 7, (x,)) * x,
    "as a size": lambda x: torch.zeros(torch.cond(x.sum() > 3, lambda: 4, lambda: 2, ())),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_follow_the_condition(name):
    function = FUNCTIONS[name]
    program = export(Calls(function), (X,))
    for module in (program.module(), program.run_decompositions().module()):
        for x in (X, -X):
            assert torch.equal(module(x), function(x))


def test_what_is_known_of_the_number_is_asserted():
    code = export(Calls(FUNCTIONS["constants"]), (X,)).graph_module.code
    assert "expression u0 >= 0 on node" in code and "expression u0 <= 1 on node" in code


def test_other_values_have_to_be_equal():
    for first, second in ((1.0, 2.0), (True, False)):
        with pytest.raises(RuntimeError, match="only whole numbers and tensors may differ"):
            export(Calls(lambda x, a=first, b=second: torch.cond(x.sum() > 3, lambda: a, lambda: b, ()) * x), (X,))
    assert torch.equal(
        export(Calls(lambda x: torch.cond(x.sum() > 3, lambda: 1.5, lambda: 1.5, ()) * x), (X,)).module()(X), X * 1.5
    )


def test_graphs_without_open_sizes_refuse_them():
    with pytest.raises(
        NotImplementedError, match="branches return different whole numbers, and the graph is made without open"
    ):
        make_fx(FUNCTIONS["constants"])(X)
    graph = make_fx(FUNCTIONS["constants"], tracing_mode="symbolic")(X)
    assert torch.equal(graph(X), FUNCTIONS["constants"](X)) and torch.equal(graph(-X), FUNCTIONS["constants"](-X))


YES, NO = torch.tensor(True), torch.tensor(False)
ROWS = Dim.DYNAMIC


def _graphs(function, example, shapes):
    """Programs and graphs of a function, with open sizes."""
    program = export(Calls(function), example, dynamic_shapes=(shapes,))
    buffer = io.BytesIO()
    save(program, buffer)
    buffer.seek(0)
    programs = (program, program.run_decompositions(), load(buffer))
    return [*(each.module() for each in programs), make_fx(function, tracing_mode="symbolic")(*example)]


def _agree(graph, function, args):
    for made, wanted in zip(*(torch.utils._pytree.tree_leaves(each(*args)) for each in (graph, function)), strict=True):
        if isinstance(wanted, torch.Tensor):
            assert torch.allclose(made, wanted)
        else:
            assert made == wanted


def test_tensors_of_different_sizes():
    def function(x, p):
        y = torch.cond(p, lambda x: x.sin(), lambda x: torch.cat([x, x]), (x,))
        return y * 2, y.shape[0]

    example = (torch.rand(4, 5), YES)
    graphs = _graphs(function, example, ({0: ROWS}, None))
    graphs += [make_fx(function, tracing_mode="fake")(*example), torch._dynamo.export(function)(*example)[0]]
    for graph in graphs:
        for p in (YES, NO):
            _agree(graph, function, (torch.rand(4, 5), p))
    for graph in graphs[:4]:
        _agree(graph, function, (torch.rand(7, 5), NO))
    with pytest.raises(
        NotImplementedError, match="return tensors of different sizes, and the graph is made without open"
    ):
        make_fx(function)(*example)


def test_sizes_that_branches_read():
    def function(x, z, p):
        a, b = x.shape[0], z.shape[0]

        def first(x):
            return torch.cond(x.sum() > 0, lambda x: x + b, lambda x: x * b, (x,)) + a

        return torch.cond(p, first, lambda x: x - b, (x,))

    graphs = _graphs(function, (torch.ones(3, 4), torch.ones(5), YES), ({0: ROWS}, {0: ROWS}, None))
    for graph in graphs:
        for x in (torch.ones(2, 4), -torch.ones(4, 4)):
            for p in (YES, NO):
                _agree(graph, function, (x, torch.ones(6), p))


def test_sizes_that_loops_read():
    def function(x, z):
        n = z.shape[0]
        carry, out = scan(lambda c, row: (c * n + row, row + n), x[0] + 0, x)
        (grown,) = while_loop(lambda y: y.sum() < 100 * n, lambda y: (y * 2 + n,), (carry.abs(),))
        return carry, out, grown, torch_map(lambda row: row * n, x)

    for graph in _graphs(function, (torch.ones(3, 4), torch.ones(5)), ({0: ROWS}, {0: ROWS})):
        _agree(graph, function, (torch.rand(4, 4), torch.ones(7)))


def test_gradients_beside_a_size_that_is_read():
    def function(x, z):
        n = z.shape[0]
        out = torch.cond(x.sum() > 0, lambda x: x.sin() * n, lambda x: x * x * n, (x,))
        return torch.autograd.grad(out.sum(), x)

    graph = make_fx(function, tracing_mode="symbolic")(torch.ones(3, requires_grad=True), torch.ones(5))
    for x in (torch.rand(4), -torch.rand(4)):
        _agree(graph, function, (x.requires_grad_(), torch.ones(6)))
