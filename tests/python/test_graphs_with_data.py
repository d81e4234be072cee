"""Numbers and sizes that only data decide within graphs: item, nonzero, masks, slices at such places; torch.cond beside them."""

import io

import mica as torch
import pytest
from export_parts import as_module, same
from mica import nn
from mica.export import export
from mica.fx.experimental.proxy_tensor import make_fx
from mica.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode


def within(u, low, high):
    torch._check(u >= low)
    torch._check(u <= high)
    return u


X = torch.tensor([[1.0, -2.0, 0.0], [0.0, 5.0, -6.0], [7.0, 0.0, 9.0], [0.5, 0.25, -1.0]])
OTHER = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, -3.0]])
N = [torch.tensor(each) for each in (0, 1, 2, 4)]
FUNCTIONS = {
    "item": lambda x, n: (x.new_zeros(within(n.item(), 0, 9), 2) + n.item(), n.item() * 2),
    "item of a float": lambda x, n: x * x.sum().item() + 1,
    "a quotient by an item": lambda x, n: (x + 1) / (x.max().item() + 1) - torch.clamp(x, max=x.max().item() / 2),
    "a truth": lambda x, n: (x * (n > 1).item(), torch.tensor([(n > 1).item()]), (n > 1).item()),
    "tolist": lambda x, n: (lambda u: x.new_ones(within(u[0], 0, 9)).sum() + u[1])(torch.stack([n, n + 1]).tolist()),
    "nonzero": lambda x, n: (torch.nonzero(x) + 1, torch.nonzero(x).shape[0] * 10),
    "where": lambda x, n: torch.where(x > 0)[0] * 3,
    "a mask": lambda x, n: (x[x > 0] * 2, x[x > 0].numel()),
    "a mask of rows": lambda x, n: x[x[:, 0] > 0] + x[x[:, 0] > 0].shape[0],
    "two tensors by one mask": lambda x, n: (lambda m: x[m] + (x * x)[m])(x > 0),
    "masked_select": lambda x, n: x.masked_select(x < 0).sum() + x.masked_select(x < 0).shape[0],
    "a mean by hand": lambda x, n: x[x != 0].sum() / x[x != 0].shape[0],
    "unique": lambda x, n: (lambda u: (u + 1, u.shape[0]))(torch.unique(x)),
    "bincount": lambda x, n: (lambda c: (c, c.shape[0]))(torch.bincount((x.abs() + 2).long().flatten())),
    "slices": lambda x, n: (lambda u: (x[:u] * 2, x[u:].sum(), x[:u].shape[0]))(within(n.item(), 0, 4)),
    "narrow": lambda x, n: x.narrow(0, 0, n.item()).sum(0),
    "a row": lambda x, n: x[within(n.item() // 2, 0, 3)] * 2,
    "a view": lambda x, n: x[x[:, 0] > 0].view(-1, 3, 1) * 2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_follow_data(name):
    """Each was exported from one example, and gives what the function gives on others."""
    function = FUNCTIONS[name]
    program = export(as_module(function), (X, N[2]))
    decomposed = program.run_decompositions()
    for module in (program.module(), decomposed.module()):
        for x in (X, OTHER):
            for n in N:
                assert same(module(x, n), function(x, n))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("tolist", "a truth")])
@pytest.mark.parametrize("aten_graph", [False, True])
def test_one_graph_follows_data(name, aten_graph):
    function = FUNCTIONS[name]
    graph, _ = torch._dynamo.export(function, aten_graph=aten_graph)(X, N[2])
    for x in (X, OTHER):
        for n in N:
            assert same(graph(x, n), function(x, n))


def test_archives_hold_numbers_of_data():
    function = lambda x, n: (x[: within(n.item(), 0, 4)], x[x > 0].sum(), n.item())  # noqa: E731
    file = io.BytesIO()
    torch.export.save(export(as_module(function), (X, N[2])), file)
    file.seek(0)
    program = torch.export.load(file)
    assert str(program.range_constraints["u0"]) == "VR[0, 4]"
    for n in N:
        assert same(program.module()(X, n), function(X, n))
    with pytest.raises(RuntimeError, match="Runtime assertion failed for expression u0 <= 4"):
        program.module()(X, torch.tensor(5))


def test_archives_say_what_numbers_of_data_are():
    """The texts are those of torch 2.13's archives, by which it reads these; it has run one with equal values."""
    import json
    import zipfile

    file = io.BytesIO()
    function = lambda x, n: (x[: within(n.item(), 0, 4)], x * x.sum().item())  # noqa: E731
    torch.export.save(export(as_module(function), (X, N[2])), file)
    with zipfile.ZipFile(file) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("models/model.json")]
        graph = json.loads(archive.read(name))["graph_module"]["graph"]
    texts = {
        kind: [each["as_expr"]["expr_str"] for each in graph[f"sym_{kind}_values"].values()]
        for kind in ("int", "float", "bool")
    }
    assert texts == {
        "int": ["Symbol('u0', integer=True)"],
        "float": ["Symbol('zuf0')"],
        "bool": [
            "GreaterThan(Symbol('u0', integer=True), Integer(0))",
            "LessThan(Symbol('u0', integer=True), Integer(4))",
        ],
    }


def test_what_is_stated_of_data_is_asserted():
    """The words are torch 2.13's."""
    function = lambda x, n: x.new_zeros(within(n.item(), 2, 10))  # noqa: E731
    program = export(as_module(function), (X, torch.tensor(4)))
    assert "torch.ops.aten.item.default(args_1)" in program.graph_module.code and list(program.range_constraints) == [
        "u0"
    ]
    graph, _ = torch._dynamo.export(function)(X, torch.tensor(4))
    for module in (program.module(), program.run_decompositions().module(), graph):
        assert module(X, torch.tensor(7)).shape == (7,)
        for wrong, words in ((1, "u0 >= 2"), (11, "u0 <= 10")):
            with pytest.raises(RuntimeError, match=f"Runtime assertion failed for expression {words} on node"):
                module(X, torch.tensor(wrong))


@pytest.mark.parametrize(
    "state, words",
    [
        (lambda ok: torch._assert_async(ok.all()), "Expected Tensor with single nonzero value, but got zero"),
        (lambda ok: torch._assert_async(ok.all(), "too small"), "too small"),
        (lambda ok: torch._check_tensor_all(ok), "Expected cond to be True, but got False."),
        (lambda ok: torch._check_tensor_all(ok, lambda: "too small"), "too small"),
        (lambda ok: torch._check_tensor_all_with(RuntimeError, ok, lambda: "too small"), "too small"),
    ],
)
def test_what_is_stated_of_tensors_is_asserted(state, words, tmp_path):
    def function(x):
        state(x > -50)
        return x * 2

    program = export(as_module(function), (X,))
    assert "torch.ops.aten._assert_async" in program.graph_module.code
    torch.export.save(program, tmp_path / "program.pt2")
    read = torch.export.load(tmp_path / "program.pt2")
    made = [program.module(), program.run_decompositions().module(), read.module(), make_fx(program.module())(X)]
    for call in (*made, function):
        assert same(call(X), X * 2)
        with pytest.raises(RuntimeError, match=words):
            call(X - 100)
    with pytest.raises(TypeError, match="dtype torch.bool"):
        torch._check_tensor_all_with(ValueError, X)


def test_branches_on_data_are_refused():
    for function in (lambda x, n: x if n.item() > 3 else -x, lambda x, n: x if x[x > 0].shape[0] > 3 else -x):
        with pytest.raises(GuardOnDataDependentSymNode, match="Could not guard on data-dependent expression"):
            export(as_module(function), (X, N[2]))
        with pytest.raises(GuardOnDataDependentSymNode):
            torch._dynamo.export(function)(X, N[2])
    with pytest.raises(RuntimeError, match="Could not guard on data-dependent expression"):
        export(as_module(lambda x, n: x * ((n > 1).item() + 1)), (X, N[2]))
    with pytest.raises(RuntimeError, match="elements cannot be converted to Scalar"):
        export(as_module(lambda x, n: x * x.item()), (X, N[2]))


def test_what_fake_tensors_cannot_do_runs_on_the_example():
    """The number of elements is none of 21s for the numbers that stand for it; nobody asks for a size."""
    function = lambda x, n: x.repeat(7, 7)[:, :21][x.repeat(7, 7)[:, :21] < 100].view(-1, 21) * 2  # noqa: E731
    program = export(as_module(function), (X, N[2]))
    assert same(program.module()(X, N[1]), function(X, N[1]))


@pytest.mark.parametrize("columns, part", [(8, 2), (24, 6), (2345, 2345)])
def test_as_few_numbers_of_data_as_a_view_needs_are_refused(columns, part):
    def function(x, n):
        return torch.ones(n.item()).repeat(4).view(-1, columns)

    module = export(as_module(function), (X, torch.tensor(2 * part))).module()
    for n in (part, 3 * part):
        assert same(module(X, torch.tensor(n)), function(X, torch.tensor(n)))
    with pytest.raises(RuntimeError, match=rf"Mod\(u0, {part}\), 0"):
        module(X, torch.tensor(part + 1))


def test_make_fx_with_numbers_of_data():
    def f(x, n):
        u = n.item()
        torch._check(u >= 0)
        return x.new_ones(u, 2).sum(0) + torch.nonzero(x).shape[0]

    graph = make_fx(f, tracing_mode="symbolic")(X, N[2])
    assert "_local_scalar_dense" in graph.code and "_assert_scalar" in graph.code
    for n in N:
        assert same(graph(X, n), f(X, n))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.register_buffer("second", torch.ones(3))

    def forward(self, x, n):
        twice = x * 2
        y = torch.cond(x.sum() > 0, lambda x: self.first(x) + twice, lambda x: x.cos() + self.second, (x,))
        u = within(n.item(), 0, 4)
        return y + 1, y[:u].sum(), torch.nonzero(x).shape[0]


@pytest.mark.parametrize("aten_graph", [False, True])
def test_items_sizes_and_branches_are_one_graph(aten_graph):
    module = Branches()
    graph, _ = torch._dynamo.export(module, aten_graph=aten_graph)(X, N[2])
    program = export(module, (X, N[2]))
    for made in (graph, program.module(), program.run_decompositions().module()):
        for x in (X, -X, OTHER):
            for n in N:
                assert all(
                    torch.allclose(torch.as_tensor(a), torch.as_tensor(b))
                    for a, b in zip(made(x, n), module(x, n), strict=True)
                )


def test_conditions_on_sizes_stay_open():
    """The graph for six rows takes the other branch for three, as in torch; and so for a condition within a branch."""

    def f(x):
        def inner(x):
            return torch.cond(x.shape[0] > 5, lambda x: x.cos() + 1, lambda x: x.tan(), (x,))

        return torch.cond(x.shape[0] > 4, inner, lambda x: x.sin(), (x,))

    graph, _ = torch._dynamo.export(f)(torch.ones(6, 4))
    program = export(as_module(f), (torch.ones(6, 4),), dynamic_shapes={"args": ({0: torch.export.Dim.DYNAMIC},)})
    for size in (3, 5, 6):
        x = torch.randn(size, 4)
        assert torch.equal(graph(x), f(x)) and torch.equal(program.module()(x), f(x))


def test_arguments_of_cond_are_checked():
    f = lambda x: x + 1  # noqa: E731
    for arguments, words in (
        (("no truth", f, f, (X,)), "Expected pred to be bool or tensor"),
        ((torch.ones(2), f, f, (X,)), "single-element tensor"),
        ((True, f, None, (X,)), "Expect both branches to be callable"),
        ((True, f, f, X), "Expect operands to be a tuple"),
        ((True, f, f, ("x",)), "Expect operands to be a tuple"),
    ):
        with pytest.raises(RuntimeError, match=words):
            torch.cond(*arguments)


def test_results_that_are_assumed_to_be_constant():
    @torch.compiler.assume_constant_result
    def count(x):
        return int((x > 0).sum()), torch.nonzero(x)

    def f(x):
        number, places = count(x)
        return x.sum() * number, places + 1

    graph, _ = torch._dynamo.export(f)(X)
    expected = f(X)
    assert same(graph(X), expected) and same(graph(OTHER), (OTHER.sum() * 6, expected[1]))
    assert same(f(OTHER), (OTHER.sum() * 2, torch.nonzero(OTHER) + 1))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="is to be constant, but its arguments are computed"):
        torch._dynamo.export(lambda x: count(x + 1))(X)


def test_lists_of_a_caller_stay_as_they_are():
    def f(xs, named):
        xs[0] = xs[1]
        named["a"] = xs.pop()
        return xs[0] + named["a"]

    xs, named = [torch.ones(2), torch.zeros(2)], {"a": torch.ones(2)}
    graph, _ = torch._dynamo.export(f)(xs, named)
    assert len(xs) == 2 and xs[0].tolist() == [1, 1] and named["a"].tolist() == [1, 1]
    assert graph(xs, named).tolist() == [0, 0]
