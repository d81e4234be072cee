"""Gradients that make_fx takes of conditions, maps and scans: nodes of their own, whose sizes stay open."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function
from mica._higher_order_ops import map as torch_map
from mica._higher_order_ops import scan, while_loop
from mica.fx.experimental.proxy_tensor import make_fx


def _rows(*sizes):
    count = torch.Size(sizes).numel()
    values = torch.arange(1, count + 1, dtype=torch.float64).reshape(sizes)
    return (values.sin() + 0.3).requires_grad_()


def _agree(function, example, others=(), larger=()):
    """Graphs compute what the function does: of the example, of others of its sizes and, with open sizes, of larger ones."""
    for mode, given in (("real", (example, *others)), ("symbolic", (example, *others, *larger))):
        graph = make_fx(function, tracing_mode=mode)(*example)
        for args in given:
            _equal(graph(*args), function(*args))
    return graph


def _equal(made, wanted):
    for a, b in zip(_leaves(made), _leaves(wanted), strict=True):
        assert a.shape == b.shape
        assert torch.allclose(a, b)


def _leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def _twice(loss, tensors):
    """The gradients of a loss, and those of a sum of their squares."""
    first = torch.autograd.grad(loss, tensors, create_graph=True)
    return first, torch.autograd.grad(sum(each.square().sum() for each in first), tensors)


def _count(graph, name):
    return sum(str(node.target) == name for node in graph.graph.nodes)


def test_a_condition_decides_the_gradients_too():
    weight = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)

    def function(x, p):
        out = torch.cond(p, lambda x: (x * weight).sin(), lambda x: x.cos(), (x,))
        return torch.autograd.grad(out.sum(), (x, weight), allow_unused=True)

    graph = make_fx(function)(_rows(3), torch.tensor(True))
    assert _count(graph, "cond") == 2
    x = _rows(3)
    of_x, of_weight = graph(x, torch.tensor(True))
    assert torch.allclose(of_x, (x * weight).cos() * weight)
    assert torch.allclose(of_weight, (x * weight).cos() * x)
    of_x, of_weight = graph(x, torch.tensor(False))
    assert torch.allclose(of_x, -x.sin())
    assert of_weight.tolist() == [0.0, 0.0, 0.0]


def test_second_gradients_of_a_condition():
    def function(x, y, p):
        def first(x):
            with torch.no_grad():
                still = x * x
            return (x * y).sin() * still * x.detach().sigmoid()

        out = torch.cond(p.sum() > 0, first, lambda x: x.cos() + y.pow(3), (x,))
        return _twice((out * out).sum(), (x, y))

    yes, no = torch.ones(1), -torch.ones(1)
    _agree(
        function, (_rows(4), _rows(4), yes), [(_rows(4), _rows(4), no)], [(_rows(7), _rows(7), p) for p in (yes, no)]
    )


def test_a_condition_within_a_condition():
    def function(x, p):
        def first(x):
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * x, (x,)) * x

        return torch.autograd.grad(torch.cond(p, first, lambda x: x * 2, (x,)).sum(), x)

    other = (-_rows(4)).detach().requires_grad_()
    _agree(function, (_rows(4), torch.tensor(True)), [(_rows(4), torch.tensor(False)), (other, torch.tensor(True))])


def test_parameters_that_branches_read():
    linear = torch.nn.Linear(4, 4, dtype=torch.float64)

    def function(x, p):
        out = torch.cond(p, lambda x: linear(x).relu(), lambda x: linear(x) * x, (x,))
        return torch.autograd.grad(out.sum(), (x, *linear.parameters()))

    graph = make_fx(function)(_rows(2, 4), torch.tensor(True))
    for p in (True, False):
        given = (_rows(2, 4), torch.tensor(p))
        _equal(graph(*given), function(*given))


def test_a_map_of_more_rows_than_the_example():
    def function(xs, y):
        out = torch_map(lambda x, y: (x * y * xs.sum()).sin(), xs, y)
        return _twice((out * out).sum(), (xs, y))

    _agree(function, (_rows(3, 4), _rows(4)), larger=[(_rows(6, 5), _rows(5))])

    def once(xs, y):
        out = torch_map(lambda x, y: x + y, xs, y)
        return torch.autograd.grad(out, (xs, y), torch.ones_like(out))

    graph = _agree(once, (_rows(3, 4), _rows(4)))
    assert _count(graph, "map_impl") == 2
    assert graph(_rows(6, 5), _rows(5))[1].tolist() == [6.0] * 5


def test_a_scan_of_more_rows_than_the_example():
    def function(init, xs, k):
        def step(carry, x):
            value, count = carry
            return (value * x.sin() * k, count + 1), (value * k).cos()

        (last, _), out = scan(step, (init, torch.zeros((), dtype=torch.int64)), xs, reverse=True)
        return _twice((out * out).sum() + (last * last).sum(), (init, xs, k))

    graph = _agree(function, (_rows(4), _rows(3, 4), _rows(4)), larger=[(_rows(5), _rows(6, 5), _rows(5))])
    assert _count(graph, "scan") > 1


def test_they_are_nodes_of_graphs_of_aot_autograd():
    def function(x, y, p):
        last, out = scan(lambda carry, row: (carry * row + y, carry * y), x, torch.stack([x, y, x]))
        chosen = torch.cond(p, lambda x: x * y, lambda x: x - y, (x,))
        rows = torch_map(lambda row: row * y, torch.stack([x, y]))
        return chosen.sum() + rows.sum() + last.sum() + (out * out).sum()

    for p in (torch.tensor(True), torch.tensor(False)):
        x, y = _rows(4), _rows(4)
        made = torch.autograd.grad(aot_function(function, lambda graph, _: graph)(x, y, p), (x, y))
        wanted = torch.autograd.grad(function(x, y, p), (x, y))
        assert all(map(torch.allclose, made, wanted))


def test_a_gradient_of_a_while_loop_is_refused():
    def function(n, x):
        out = while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * 2), (n, x))[1]
        return torch.autograd.grad(out.sum(), x, allow_unused=True)

    with pytest.raises(NotImplementedError, match="a gradient of torch.while_loop"):
        make_fx(function)(torch.tensor(3), _rows(3))
