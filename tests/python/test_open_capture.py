"""torch.compile(backend=function) with open sizes: which graphs are made for other sizes, and which are used again."""

import math

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit, RecompileError, Unsupported
from mica._dynamo.testing import CompileCounter, CompileCounterWithBackend
from mica.fx.experimental.symbolic_shapes import ConstraintViolationError


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def _graphs(function, calls, **options):
    """The graphs that are made for calls, each of which has to give what the function gives."""
    backend = CompileCounterWithBackend("eager")
    compiled = torch.compile(function, backend=backend, **options)
    for args in calls:
        made, expected = compiled(*args), function(*args)
        assert torch.equal(made, expected) and made.shape == expected.shape
    return backend.graphs


def _rows(*counts, width=3):
    return [(torch.randn(count, width),) for count in counts]


def test_open_sizes_are_inputs_of_the_graph():
    def function(x):
        return torch.cat([x, torch.zeros(x.shape[0], 2)], 1) * (x.size(0) + 1)

    (graph,) = _graphs(function, _rows(4, 6, 9), dynamic=True, fullgraph=True)
    size, _, x = [node for node in graph.graph.nodes if node.op == "placeholder"]
    assert isinstance(size.meta["val"], torch.SymInt) and size.target == "s0" and x.target == "L_x_"
    assert str(x.meta["val"].shape) == "torch.Size([s0, s1])"
    assert 'def forward(self, s0: "Sym(s0)", s1: "Sym(s1)", L_x_: "f32[s0, s1]"):' in graph.print_readable(False)


def test_a_size_that_has_changed_is_open_from_then_on():
    first, second = _graphs(lambda x: x.relu() + x.shape[0], _rows(4, 6, 9, 5))
    assert len(list(first.graph.nodes)) == 4 and "s0" in second.code
    assert len(_graphs(lambda x: x.relu() + 1, _rows(4, 6, 9), dynamic=False)) == 3
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert len(_graphs(lambda x: x.relu() + 1, _rows(4, 6, 9))) == 3


def test_equal_sizes_are_served_by_the_graph_of_different_ones():
    assert len(_graphs(lambda x: torch.cat([x, x]) * x.shape[0], _rows(2, 3, 4, 3, 5), dynamic=True)) == 1
    sizes = [(2, 3, 4), (3, 3, 3), (5, 4, 2), (4, 4, 2), (2, 5, 5)]
    products = [(torch.randn(a, b), torch.randn(b, c)) for a, b, c in sizes]
    assert len(_graphs(lambda x, y: x @ y, products, dynamic=True)) == 1
    assert len(_graphs(lambda x: x + x.t(), [(torch.randn(n, n),) for n in (2, 3)], dynamic=True)) == 1


def test_whole_numbers_among_the_arguments():
    x = torch.arange(12.0)
    programs = [
        lambda x, n: x * n + (7 - n), lambda x, n: x[n:], lambda x, n: torch.full((2,), n), lambda x, n: x * -n,
        lambda x, n: torch.arange(n) + 0.5, lambda x, n: x + n if type(n) in (int, float) else x, lambda x, n: x * (20 // (n + 1)),
    ]  # fmt: skip
    for program in programs:
        assert len(_graphs(program, [(x, n) for n in (2, 5, 1, 0, 3)], dynamic=True)) == 1
    for program in (
        lambda x, n: x.view(n, -1),
        lambda x, n: x * [1, 2, 3, 4, 5][n],
        lambda x, n: x if n > 2 else x.sin(),
    ):
        _graphs(program, [(x, n) for n in (2, 3, 4)], dynamic=True)
    assert len(_graphs(lambda x, n: x * n, [(x, n) for n in (2, 3)])) == 2
    assert len(_graphs(lambda x, n: x if type(n) is int else -x, [(x, n) for n in (2, 3)])) == 1


def test_a_graph_without_open_sizes_serves_its_sizes_again():
    def function(x):
        return x.view(-1) * 2 if x.is_contiguous() else x.reshape(-1) * 3

    x = torch.randn(2, 3)
    assert len(_graphs(function, [(x,), (x.t(),), (x,), (torch.randn(4, 5).t(),)])) == 2


def test_settings_of_captured_functions():
    def broken(graph, example):
        raise ValueError("no graphs today")

    x = torch.ones(2)
    with torch._dynamo.config.patch(suppress_errors=True):
        assert torch.equal(torch.compile(lambda x: x + 1, backend=broken)(x), x + 1)
        with pytest.raises(BackendCompilerFailed, match="no graphs today"):
            torch.compile(lambda x: x + 1, backend=broken, fullgraph=True)(x)
    counter = CompileCounter()
    compiled = torch.compile(lambda x: x + 1, backend=counter)
    with torch._dynamo.config.patch(disable=True):
        assert torch.equal(compiled(x), x + 1) and counter.frame_count == 0
    assert torch.equal(compiled(x), x + 1) and counter.frame_count == 1


def test_sizes_of_zero_and_one_have_graphs_of_their_own():
    assert len(_graphs(lambda x: x + 1, _rows(4, 1, 6, 0, 7), dynamic=True)) == 3


def test_marked_sizes():
    def marked(mark, *axes):
        rows = _rows(4, 6, 9)
        for (x,) in rows:
            mark(x, *axes)
        return rows

    def function(x):
        return x.sin() + x.shape[0]

    assert len(_graphs(function, marked(torch._dynamo.mark_dynamic, 0), fullgraph=True)) == 1
    assert len(_graphs(function, marked(torch._dynamo.maybe_mark_dynamic, 0))) == 1
    assert len(_graphs(function, marked(torch._dynamo.mark_static, 0), dynamic=True)) == 3
    assert len(_graphs(function, marked(torch._dynamo.mark_static), dynamic=True)) == 3


@pytest.mark.parametrize("axis", [-1, 2, 3, (0, 5)])
def test_a_mark_on_a_dimension_that_is_not_there_has_no_effect(axis):
    x = torch.randn(4, 3)
    torch._dynamo.mark_dynamic(x, axis)
    layer = nn.Linear(3, 2)
    assert torch.equal(torch.compile(layer, backend="eager", fullgraph=True)(x), layer(x))
    (width,) = {
        node.meta["val"].shape[1] for node in torch.export.export(layer, (x,)).graph.nodes if node.name == "input"
    }
    assert width == 3
    scalar = torch.tensor(2.0)
    torch._dynamo.mark_dynamic(scalar, 0)
    assert torch.compile(lambda s: s * 2, backend="eager")(scalar) == 4


def test_a_marked_size_that_has_to_be_a_number_is_an_error():
    layer = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    torch._dynamo.mark_dynamic(x, 1)
    with pytest.raises(ConstraintViolationError, match=r"L_\w+_.size\(\)\[1\].*needs it to be 3"):
        torch.compile(layer, backend="eager", fullgraph=True)(x)


def test_sizes_that_have_to_be_numbers_are_fixed():
    layer = nn.Linear(3, 2)

    def function(x):
        kept = x * 2
        y = layer(x + kept)  # the width is that of the weight
        return torch.cat([y, kept], 1).softmax(-1)

    (graph,) = _graphs(function, _rows(4, 6, 9), dynamic=True, fullgraph=True)
    values = {node.name: node.meta["val"] for node in graph.graph.nodes if "val" in node.meta}
    assert [str(values[name].shape) for name in ("l_x_", "mul", "cat")] == [
        "torch.Size([s0, 3])",
        "torch.Size([s0, 3])",
        "torch.Size([s0, 5])",
    ]


def test_sizes_that_have_to_be_equal_are():
    pairs = [(torch.randn(2, n), torch.randn(n, 3)) for n in (4, 6, 9)]
    assert len(_graphs(lambda x, y: x @ y, pairs, dynamic=True, fullgraph=True)) == 1


def test_layers_of_pictures():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(1)).eval()
    pictures = [(torch.randn(n, 3, 12, 12),) for n in (2, 4, 6)]
    assert len(_graphs(net, pictures, dynamic=True, fullgraph=True)) == 1


def test_sizes_are_numbers_to_python():
    """Python decides anew in every call, so that it may do with a size what it does with a number."""

    def function(x):
        n = x.shape[0]
        known = {4: 10, 6: 20, 9: 30}[n] + len(f"{n:>3}|{n!r}")
        assert isinstance(n, int) and type(x.shape[-1:]) is type(x.shape) and [0] * n and range(n)[-1] == n - 1
        return x[: n - 1] * known + hash(n) + max(n, 5) + (n // 2) * 3 - 2 * n % 7 + n / 2

    assert len(_graphs(function, _rows(4, 6, 9), dynamic=True)) == 3  # the entry of the dict is a number of the graph
    assert len(_graphs(lambda x: x[: x.shape[0] - 1] + x.numel() * 2, _rows(4, 6, 9), dynamic=True)) == 1


def test_branches_on_sizes():
    assert len(_graphs(lambda x: x + 1 if x.shape[0] > 5 else x - 1, _rows(4, 8, 9, 2), dynamic=True)) == 2


def test_results_have_numbers_for_sizes():
    function = torch.compile(
        lambda x: (x.shape, x.shape[0], [x.numel() / 2], x), backend="eager", dynamic=True, fullgraph=True
    )
    shape, count, (half,), _ = function(torch.ones(4, 3))
    assert type(shape) is torch.Size and type(count) is int and shape == (4, 3) and count == 4 and half == 6.0


def test_values_that_are_asked_for_break_graphs_of_open_sizes():
    def function(x):
        total = (x * 2).sum()
        return x + total if total.item() > 0 else x - total

    assert len(_graphs(function, [(torch.ones(n),) for n in (4, 6, 9)], dynamic=True)) == 2


def test_gradients_through_graphs_of_open_sizes():
    layer = nn.Linear(5, 2)
    counter = CompileCounterWithBackend("aot_eager")
    function = torch.compile(
        lambda x: (layer(x).relu() * x.shape[0]).sum(), backend=counter, dynamic=True, fullgraph=True
    )
    for count in (3, 4, 7):
        x = torch.randn(count, 5, requires_grad=True)
        (made,) = torch.autograd.grad(function(x), x)
        (expected,) = torch.autograd.grad((layer(x).relu() * count).sum(), x)
        torch.testing.assert_close(made, expected)
    assert counter.frame_count == 1


# ---- how many graphs, and who compiles them


def test_the_limit_of_graphs():
    counter = CompileCounter()
    with torch._dynamo.config.patch(recompile_limit=2):
        function = torch.compile(lambda x: x + 1, backend=counter, dynamic=False)
        with pytest.warns(UserWarning, match=r"hit config.recompile_limit \(2\)"):
            for count in (2, 3, 4, 5):
                assert function(torch.ones(count)).tolist() == [2] * count
        assert counter.frame_count == 2
        whole = torch.compile(lambda x: x + 1, backend=counter, dynamic=False, fullgraph=True)
        with pytest.raises(FailOnRecompileLimitHit, match="recompile_limit"):
            for count in (2, 3, 4):
                whole(torch.ones(count))
    with torch._dynamo.config.patch(error_on_recompile=True), pytest.raises(RecompileError):
        function = torch.compile(lambda x: x + 1, backend=counter, dynamic=False)
        function(torch.ones(2)), function(torch.ones(3))
    one = torch.compile(lambda x: x - 1, backend=counter, dynamic=False, recompile_limit=1, fullgraph=True)
    one(torch.ones(2))
    with pytest.raises(FailOnRecompileLimitHit):
        one(torch.ones(3))


def test_stances():
    counter, other = CompileCounter(), CompileCounter()
    function = torch.compile(lambda x: x * 2, backend=counter, dynamic=False)
    with torch.compiler.set_stance("eager_then_compile"):
        function(torch.ones(2))
        assert counter.frame_count == 0
        function(torch.ones(2))
        assert counter.frame_count == 1
    with torch.compiler.set_stance("eager_on_recompile"):
        assert function(torch.ones(3)).tolist() == [2, 2, 2] and counter.frame_count == 1
    with torch.compiler.set_stance("fail_on_recompile"):
        function(torch.ones(2))
        with pytest.raises(RuntimeError, match="Detected recompile when torch.compile stance is 'fail_on_recompile'"):
            function(torch.ones(3))
    with torch.compiler.set_stance(force_backend=other):
        function(torch.ones(4))
    assert (counter.frame_count, other.frame_count) == (1, 1)
    with pytest.raises(RuntimeError, match="non-default stance cannot have force_backend set"):
        torch.compiler.set_stance("force_eager", force_backend=other)

    @torch.compiler.set_stance("force_eager")
    def decorated(x):
        return function(x)

    assert decorated(torch.ones(7)).tolist() == [2] * 7 and counter.frame_count == 1
    function(torch.ones(5))
    assert counter.frame_count == 2


def test_breaks_can_be_errors_in_a_part():
    def branching(x):
        return x * 2 if (x + 1).sum() > 0 else -x

    strict = torch._dynamo.error_on_graph_break(True)(branching)

    @torch.compile(backend=CompileCounter())
    def function(x, is_strict):
        y = branching(x)
        return strict(y) if is_strict else y

    for _ in range(2):
        assert function(torch.ones(2), False).tolist() == [2, 2]
        with pytest.raises(Unsupported, match="__bool__"):
            function(torch.ones(2), True)


# What torch 2.13 does with each of these in a function that is to be one graph, with the backend "eager".
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x.sum().item(),
        lambda x: float(x.sum()) + x,
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.distributions.Normal(x, torch.tensor(1.0)).mean,
        lambda x: [x + 1] if bool(x.sum()) is None else x,
    ],
)
def test_what_passes_in_one_graph(function):
    x = torch.ones(3, 3)
    assert torch.equal(torch.compile(function, backend="eager", fullgraph=True)(x), function(x))


def test_what_is_refused_in_one_graph():
    def branch(x):
        return x if x.sum() > 0 else -x

    def text(x):
        print(x + 1)

    def broken(x):
        torch._dynamo.graph_break()
        return x

    for function in (branch, text, broken, lambda x: (x + 1).tolist(), lambda x: torch.equal(x + 1, x)):
        with pytest.raises(Unsupported):
            torch.compile(function, backend="eager", fullgraph=True)(torch.ones(3))


def test_conditions_on_open_sizes():
    def function(x):
        torch._check(x.shape[0] > 3, lambda: "too few rows")
        return x + 1

    assert len(_graphs(function, _rows(4, 6, 9), dynamic=True, fullgraph=True)) == 1
    with pytest.raises(RuntimeError, match="too few rows"):
        torch.compile(function, backend="eager", dynamic=True, fullgraph=True)(torch.ones(2, 2))


def test_layers_of_a_kind_share_their_graphs():
    counter = CompileCounter()
    layers = [torch.compile(nn.Linear(3, 3), backend=counter) for _ in range(3)]
    x = expected = torch.randn(2, 3, requires_grad=True)
    for layer in layers:
        x, expected = layer(x), layer._orig_mod(expected)
    assert torch.equal(x, expected) and counter.frame_count == 1
    other = CompileCounter()
    torch.compile(nn.Linear(3, 3), backend=other)(x)
    assert other.frame_count == 1 and counter.frame_count == 1


def test_promises_that_only_the_engine_keeps_are_computed_again():
    linear, convolution = torch.nn.Linear(16, 16), torch.nn.Conv2d(3, 8, 3, padding=1)

    def function(x, t):
        return linear(t[:, None].float().expand(-1, 16)), convolution(x)

    compiled = torch.compile(function, dynamic=True, backend=lambda graph, inputs: graph.forward)
    for count in (4, 5):
        x, t = torch.randn(count, 3, 16, 16), torch.randint(0, 100, (count,))
        for wanted, given in zip(function(x, t), compiled(x, t), strict=True):
            assert torch.equal(wanted, given)


@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_sizes_that_data_decide_end_the_graph(options):
    def function(x):
        order, kept = x.argsort(), []
        while order.numel() > 0:
            first, rest = order[0], order[1:]
            kept.append(first.item())
            order = rest[x[rest] - x[first] > 0.1]
        return torch.tensor(kept)

    compiled = torch.compile(function, backend=lambda graph, inputs: graph.forward, recompile_limit=1000, **options)
    for count in (5, 6, 40, 41):  # more sizes come up than a set of open sizes has room for
        x = torch.rand(count)
        assert torch.equal(compiled(x), function(x))


def test_tensors_of_five_and_of_seven_dimensions():
    module = nn.Conv3d(4, 6, 3)
    calls = [(torch.randn(2, 4, 5, 6, 7),), (torch.randn(3, 4, 8, 5, 6),), (torch.randn(9, 4, 6, 7, 5),)]
    assert len(_graphs(lambda x: module(x).permute(2, 1, 4, 0, 3), calls, dynamic=True, fullgraph=True)) == 1
    calls = [(torch.randn(2, 3, 2, 4, 2, 3, n),) for n in (2, 5)]
    _graphs(lambda x: (x.sin() + 1).sum(0), calls, dynamic=True, fullgraph=True)


@pytest.mark.parametrize("way", [math.floor, math.ceil, math.trunc, round])
def test_whole_numbers_of_shares_are_open(way):
    def function(x):
        n = x.shape[0]
        assert type(n / 2) in (int, float) and type(n * 0.3) in {float} and isinstance(n * 0.3, float)
        return x[: way(n * 0.3)] + way(2 - 1 / (0.5 + n / 4)) + (n * 0.5)

    # The half of the size is a number of each call.
    assert len(_graphs(lambda x: x[: way(x.shape[0] * 0.3)] * 2, _rows(14, 10, 11, 15, 30), dynamic=True)) == 1
    assert len(_graphs(function, _rows(14, 10, 14), dynamic=True)) == 2


def test_shares_whose_factors_give_another_number_are_fixed():
    def function(x):
        return x[: math.ceil(x.shape[0] * 0.1 * 10)] * 1  # 3 * 0.1 * 10 is more than 3

    assert math.ceil(3 * 0.1 * 10) == 4
    padded = [(torch.randn(count, 2),) for count in (20, 3, 7, 6)]
    _graphs(lambda x: torch.zeros(math.ceil(x.shape[0] * 0.1 * 10)) + 1, padded, dynamic=True)
    _graphs(function, padded, dynamic=True)
