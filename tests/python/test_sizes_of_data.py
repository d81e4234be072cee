"""Sizes that only data decide, about which a program comes to rely on something: that two are equal, that one is a multiple of a
number, that places lie within. Each was exported from one example and gives what the function gives on others; where
torch 2.13 asserts, so does the graph."""

import mica as torch
import pytest
from export_parts import as_module, check_program, same
from mica.export import Dim, export
from mica.fx.experimental.proxy_tensor import make_fx
from mica.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

X, V = torch.arange(12.0).reshape(3, 4), torch.arange(10.0)
N = torch.tensor


def stated(*truths):
    for truth in truths:
        torch._check(truth)


def halves(x):
    low, high = x[x <= 5], x[x > 5]
    stated(low.shape[0] == high.shape[0])
    return low + high


def of_items(x):
    a, b = x.tolist()
    return torch.ones(a) + torch.ones(b)


def pairs(x):
    chosen = x[x > 3]
    stated(chosen.shape[0] % 2 == 0)
    return chosen.view(-1, 2).sum(1), chosen.view(2, -1), chosen.shape[0]


def rows(n, x):
    n = n.item()
    stated(n == x.shape[0])
    return x.view(n, 2, 2) + torch.ones(n)[:, None, None]


def cut(n, x):
    parts = torch.split(x, n.tolist())
    return [part.sum() for part in parts] + [parts[0] * 2]


def first_and_last(x):
    chosen = x[x > 3]
    stated(chosen.shape[0] > 0)
    return chosen[0], chosen[-1]


def several(x):
    a, b = x[x > 3], x[x < 2]
    return torch.cat([a, b, a]), torch.cat([a, x.flatten()]), torch.cat([b, a]).shape[0]


# name: (function, the example, other arguments, arguments that are refused)
PROGRAMS = {
    "two sizes that are equal": (halves, (X,), [(X - 0.5,)], [(X + 100,)]),
    "two numbers that are equal": (of_items, (N([3, 3]),), [(N([5, 5]),), (N([0, 0]),)], [(N([2, 3]),)]),
    "an even size": (pairs, (X,), [(X + 2,), (X - 6,)], [(X + 1,)]),
    "a number that is a size": (rows, (N(3), X), [], [(N(2), X)]),
    "pieces": (cut, (N([3, 7]), V), [(N([4, 6]), V), (N([0, 10]), V)], [(N([4, 5]), V), (N([-1, 11]), V)]),
    "three pieces": (cut, (N([3, 2, 5]), V), [(N([1, 1, 8]), V)], [(N([1, 1, 1]), V)]),
    "the ends of what is chosen": (first_and_last, (X,), [(X + 100,), (X - 7.5,)], [(X - 100,)]),
    "a row by a number": (lambda n, x: x[n.item()], (N(1), X), [(N(2), X), (N(-1), X)], [(N(3), X)]),
    "several joined": (several, (X,), [(X + 100,), (X - 100,)], []),
    "repetitions": (
        lambda n, x: (torch.repeat_interleave(n), torch.repeat_interleave(x, n, dim=0).sum(1)),
        (N([1, 0, 2]), X), [(N([4, 1, 2]), X), (N([0, 0, 0]), X)], [],
    ),
    "quotients": (
        lambda n: (torch.ones(n.item() // 2), torch.zeros(2) + n.item() / 2, torch.zeros(2) + torch.sym_float(n.item()) / 3),
        (N(5),), [(N(7),), (N(2),)], [(N(-4),)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_rely_on_what_they_state(name):
    check_program(*PROGRAMS[name])


def test_what_is_relied_on_is_asserted():
    program = export(as_module(halves), (X,))
    with pytest.raises(RuntimeError, match=r"Runtime assertion failed for expression Eq\(u0, u1\)"):
        program.module()(X + 100)
    with pytest.raises(RuntimeError, match=r"Runtime assertion failed for expression Eq\(Mod\(u0, 2\), 0\)"):
        export(as_module(pairs), (X,)).module()(X + 1)


def test_an_example_that_the_program_itself_refuses_is_exported():
    """As in torch: the sum needs as many numbers below two as there are above three."""
    function = lambda x: x[x > 3] + x[x < 2]  # noqa: E731
    program = export(as_module(function), (X,))
    assert same(program.module()(torch.tensor([1.0, 5.0])[None].expand(3, 2)[:, [0, 1, 0, 1]]), torch.full((6,), 6.0))
    with pytest.raises(RuntimeError, match=r"Eq\(u0, u1\)"):
        program.module()(X)


@pytest.mark.parametrize("join", [torch.add, torch.mul, torch.where])
def test_places_are_rather_as_many_as_others_than_one(join):
    """A size of 1 would be repeated, and fit any other."""

    def function(x, y):
        a, b = x.nonzero(), y.nonzero()
        return join(a > 0, a, b) if join is torch.where else join(a, b)

    x, y = N([1, 0, 2, 0]), N([0, 3, 0, 4])
    program = export(as_module(function), (x, y))
    assert same(program.module()(x, y), function(x, y))
    assert same(program.module()(x + 1, y + 1), function(x + 1, y + 1))
    with pytest.raises(RuntimeError, match=r"Eq\(u0, u1\)"):
        program.module()(x, y + 1)


def test_a_size_of_data_and_an_open_size_are_equal():
    program = export(as_module(rows), (N(3), X), dynamic_shapes=((None, {0: Dim.DYNAMIC}),))
    for count in (2, 3, 7):
        x = torch.arange(4.0 * count).reshape(count, 4)
        assert same(program.module()(N(count), x), rows(N(count), x))
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        program.module()(N(4), X)


def test_make_fx_relies_on_statements():
    for function, example, others in [(halves, X, X - 0.5), (several, X, X + 100)]:
        graph = make_fx(function, tracing_mode="symbolic")(example)
        assert same(graph(others), function(others))


def test_repeats_are_places_in_a_graph():
    graph = make_fx(lambda x, n: torch.repeat_interleave(x, n, dim=1), tracing_mode="symbolic")(X, torch.arange(1, 5))
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert names == ["aten.repeat_interleave.Tensor", "aten.index_select.default"]
    assert same(graph(X, torch.arange(4)), X.repeat_interleave(torch.arange(4), 1))


def test_more_numbers_than_sixteen():
    function = lambda x: sum(x.tolist()[1:]) * torch.ones(x.tolist()[0])  # noqa: E731
    program = export(as_module(function), (torch.arange(1, 41),))
    other = torch.arange(2, 42)
    assert same(program.module()(other), function(other))


def test_is_size():
    with pytest.warns(FutureWarning, match="_check_is_size will be removed in a future PyTorch release"):
        torch._check_is_size(3, max=3)
    for wrong in (-1, 4):
        with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="Expected cond to be True, but got False"):
            torch._check_is_size(wrong, max=3)


def test_questions_are_refused_in_torchs_words():
    def branch(x):
        return x + 1 if x.nonzero().shape[0] > 2 else x

    with pytest.raises(GuardOnDataDependentSymNode) as error:
        export(as_module(branch), (V,))
    text = str(error.value)
    assert "data-dependent expression u0 > 2 (unhinted: u0 > 2).  (Size-like symbols: u0)\n\nconsider using" in text
    assert "Caused by: (" in text
    assert "test_sizes_of_data.py:" in text
    with pytest.raises(
        GuardOnDataDependentSymNode, match="Could not extract specialized integer from data-dependent expr"
    ):
        export(as_module(lambda x: x + len(range(x.item()))), (N(3),))
