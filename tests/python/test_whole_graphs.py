"""torch._dynamo.export, one graph of a function, and torch._dynamo.explain, all of them. What torch 2.13 gave is recorded here."""

import operator

import mica as torch
import pytest
from mica import nn
from mica._dynamo.exc import Unsupported
from mica.fx.experimental.symbolic_shapes import ConstraintViolationError

export = torch._dynamo.export


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 4)
        self.register_buffer("shift", torch.ones(4))
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x, *, scale=2):
        y = self.lin(x) * scale + self.shift
        return {"out": self.tail(y), "number": 3, "x": x}


def operators(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def test_a_module_becomes_one_graph_with_its_own_arguments():
    model = Model()
    graph, guards = export(model)(torch.ones(2, 3), scale=4)
    head = graph.code.strip().splitlines()[:3]
    assert head == [
        "def forward(self, x, scale):",
        "    arg0, arg1, = fx_pytree.tree_flatten_spec(([x], {'scale':scale}), self._in_spec)",
        "    l_x_ = arg0",
    ]
    assert list(dict(graph.named_parameters())) == [
        "L__self___lin_weight", "L__self___lin_bias", "L__self___tail_1_weight", "L__self___tail_1_bias",
    ]  # fmt: skip
    assert list(dict(graph.named_buffers())) == ["L__self___shift"]
    assert [node.name for node in graph.graph.nodes if node.op == "placeholder"] == ["l_x_", "arg1"]
    assert not guards, "nothing is relied on but what is in the graph"
    x = torch.randn(5, 3)
    found, expected = graph(x, scale=4), model(x, scale=4)
    assert torch.equal(found["out"], expected["out"]) and found["number"] == 3 and found["x"] is x


def test_aten_graphs():
    graph, _ = export(Model(), aten_graph=True)(torch.ones(2, 3))
    assert operators(graph) == [
        "aten.t.default", "aten.addmm.default", "aten.mul.Tensor", "aten.add.Tensor", "aten.relu.default",
        "aten.detach.default", "aten.t.default", "aten.addmm.default",
    ]  # fmt: skip
    graph, _ = export(Model(), aten_graph=True, pre_dispatch=True)(torch.ones(2, 3))
    assert operators(graph)[0] == "aten.linear.default"
    table = {torch.ops.aten.relu.default: lambda x: torch.clamp_min(x, 0)}
    graph, _ = export(torch.relu, aten_graph=True, decomposition_table=table)(torch.ones(3))
    assert operators(graph) == ["aten.clamp_min.default"]


def test_sizes_are_open_unless_they_are_traced_as_numbers():
    def f(x, y):
        n = x.shape[0]
        return x.reshape(n * 2, -1) + y.sum(), n

    graph, guards = export(f)(torch.ones(4, 6), torch.ones(3))
    assert not guards and operators(graph)[0] == "aten.sym_size.int"
    out, n = graph(torch.ones(8, 6), torch.ones(5))
    assert out.shape == (16, 3) and n == 8
    graph, _ = export(f, aten_graph=True, tracing_mode="real")(torch.ones(4, 6), torch.ones(3))
    assert operators(graph) == ["aten.view.default", "aten.sum.default", "aten.add.Tensor"]
    assert graph(torch.ones(4, 6), torch.ones(3))[1] == 4
    graph, _ = export(f, same_signature=False)(torch.ones(4, 6), torch.ones(3))
    assert graph.code.strip().splitlines()[0] == "def forward(self, L_x_, L_y_):"
    assert isinstance(graph(torch.ones(2, 6), torch.ones(3)), tuple)
    graph, _ = export(lambda x: (x + 1, x.shape))(torch.ones(3, 4))
    assert graph(torch.ones(5, 6))[1] == (5, 6)


def test_what_is_asked_of_a_size_is_a_guard():
    graph, guards = export(lambda x: x + 1 if x.shape[0] > 3 else x - 1)(torch.ones(5, 2))
    assert guards == ["s0 > 3"] and torch.equal(graph(torch.ones(7, 2)), torch.full((7, 2), 2.0))
    assert export(lambda x: sum(x[i] for i in range(x.shape[0])))(torch.ones(5, 2)).guards == ["Eq(s0, 5)"]
    assert export(lambda x, y: x)(torch.ones(3), torch.ones(2)).guards == []


def test_sizes_that_were_said_to_be_open_are():
    size = torch.export.Dim("n")
    x = torch.ones(5, 4)
    graph, _ = export(lambda x, y: (x + 1, y + 1), dynamic_shapes=({0: size}, {0: torch.export.Dim("m")}))(x, x.clone())
    assert [each.shape[0] for each in graph(torch.ones(9, 4), torch.ones(3, 4))] == [9, 3]
    with pytest.raises(ConstraintViolationError, match="needs it to be 4"):
        export(lambda x: x @ torch.ones(4, 4), dynamic_shapes={"x": {1: size}})(x)
    with pytest.raises(ConstraintViolationError, match="needs 4 <= size"):
        export(lambda x: x + 1 if x.shape[0] > 3 else x, dynamic_shapes={"x": {0: size}})(x)
    export(lambda x: x + 1 if x.shape[0] > 3 else x, dynamic_shapes={"x": {0: torch.export.Dim("k", min=4)}})(x)
    assert not vars(x), "the argument is not marked"


def test_aten_graphs_have_sizes_that_are_open_as_far_as_they_can_be():
    graph, _ = export(lambda x: [part * 2 for part in x.chunk(2)], aten_graph=True)(torch.ones(6, 5))
    assert [each.shape[0] for each in graph(torch.ones(9, 5))] == [5, 4]
    graph, _ = export(lambda x: x.split(x.shape[0] // 2)[0], aten_graph=True)(torch.ones(6, 5))
    assert graph(torch.ones(8, 5)).shape == (4, 5)
    graph, _ = export(lambda x: torch.zeros(x.shape[0] * 2), aten_graph=True)(torch.ones(6, 5))
    assert graph(torch.ones(2, 5)).shape == (4,)
    graph, _ = export(lambda: torch.tensor([1.0, 2.0]) * 2, aten_graph=True)()
    assert operators(graph) == ["aten.lift_fresh_copy.default", "aten.mul.Tensor"]
    assert torch.equal(graph(), torch.tensor([2.0, 4.0]))
    weight, conv, x = torch.randn(7, 98), nn.Conv2d(4, 3, 3), torch.randn(2, 4, 5, 100)
    graph, _ = export(lambda x: nn.functional.linear(conv(x), weight), aten_graph=True)(x)
    assert torch.allclose(graph(x), nn.functional.linear(conv(x), weight))
    again, _ = export(graph, aten_graph=True)(x)
    assert torch.equal(again(x), graph(x))
    other = torch.randn(3, 4, 9, 100)
    assert torch.allclose(graph(other), nn.functional.linear(conv(other), weight)), "rows of pixels are open"
    sized = {2: torch.export.Dim("n")}
    export(lambda x: nn.functional.linear(conv(x), weight), aten_graph=True, dynamic_shapes=(sized,))(x)


def test_nothing_is_changed_by_an_export():
    norm, x = nn.BatchNorm1d(3), torch.ones(4, 3)
    state = torch.get_rng_state()

    def f(x):
        x.add_(1)
        return norm(x) + torch.rand(3)

    for options in ({}, {"aten_graph": True}):
        graph, _ = export(f, **options)(x)
        assert x._version == 0 and norm.num_batches_tracked == 0 and not norm.running_mean.any()
        assert torch.equal(torch.get_rng_state(), state)
    graph(x)
    assert x._version == 1 and norm.num_batches_tracked == 1 and torch.equal(x, torch.full((4, 3), 2.0))

    class Replacing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(3))

        def forward(self, x):
            self.kept = self.kept + x
            return self.kept * 2

    module = Replacing()
    before = module.kept
    with pytest.raises(Unsupported, match="replaces 'kept'"):
        export(module)(torch.ones(3))
    assert module.kept is before


def test_what_a_module_keeps_of_an_export_is_forgotten():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.shift, self.calls = nn.Linear(5, 5), None, []

        def forward(self, x):
            if self.shift is None:
                self.shift = torch.ones_like(x)
            self.calls.append(1)
            return self.lin(x) + self.shift  # the size of x is fixed: the function is recorded once more

    model, x = Lazy(), torch.randn(5, 5)
    graph, _ = export(model)(x)
    assert model.shift is None and model.calls == []
    assert torch.equal(graph(x), model.lin(x) + 1) and torch.equal(model(x), graph(x))


def test_the_gradient_mode_is_part_of_the_graph():
    def f(x):
        with torch.no_grad():
            y = x * 2
        return y + x

    x = torch.ones(3, requires_grad=True)
    graph, _ = export(f)(x)
    graph(x).sum().backward()
    assert torch.is_grad_enabled() and torch.equal(x.grad, torch.ones(3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: bool(x.sum()),
        lambda x: x if x.sum() > 0 else -x,
        lambda x: (torch._dynamo.graph_break(), x + 1),
        lambda x: {"made": object(), "x": x + 1},
    ],
)
def test_what_cannot_be_in_one_graph_is_refused(function):
    with pytest.raises(Unsupported):
        export(function)(torch.ones(3))
    assert torch.equal(
        torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)(torch.ones(3)), torch.full((3,), 2.0)
    )


def test_arguments_of_export_are_checked():
    with pytest.raises(AssertionError, match="aten_graph=True"):
        export(torch.sin, decomposition_table={})
    with pytest.raises(AssertionError, match="aten_graph=True"):
        export(torch.sin, pre_dispatch=True)
    with pytest.warns(FutureWarning):
        graph, _ = export(torch.sin, torch.ones(3))
    assert torch.equal(graph(torch.ones(2)), torch.ones(2).sin())
    with pytest.raises(IndexError):
        export(lambda x: [][0])(torch.ones(3))


def test_nests_of_arguments_and_shared_tensors():
    x = torch.ones(3)
    graph, _ = export(lambda d, rest: {"a": d["x"] + rest[0], "b": [rest[1], None, "text"]})(
        {"x": x}, [x, torch.zeros(2)]
    )
    out = graph({"x": x}, [x, torch.zeros(2)])
    assert torch.equal(out["a"], x + x) and out["b"][1:] == [None, "text"]
    weight = torch.randn(3)
    graph, _ = export(lambda x: x * weight)(x)
    assert torch.equal(graph(x), weight) and len(list(graph.buffers())) == 1
    assert torch.equal(export(torch.compile(lambda x: x * 2))(x).graph_module(x), x * 2)


@pytest.mark.parametrize("aten", [False, True])
def test_loops_over_elements_are_nodes_for_any_number_of_them(aten):
    class Mapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))

        def forward(self, pred, xs, y):
            def body(x, pred, y):
                return torch.cond(pred, lambda x: x * self.weight, lambda x: x - y, [x]), x.sum()

            return torch._higher_order_ops.map(body, xs, pred, y)

    class Scanned(Mapped):
        def forward(self, pred, xs, y):
            return torch._higher_order_ops.scan(lambda carry, x: (carry + x, carry * self.weight), y, xs)

    for model, name in ((Mapped(), "map_impl"), (Scanned(), "scan")):
        graph, _ = export(model, aten_graph=aten)(torch.tensor(True), torch.ones(3, 2), torch.ones(2))
        assert name in operators(graph)
        for count in (3, 5):
            given = (torch.tensor(False), torch.randn(count, 2), torch.randn(2))
            for made, expected in zip(graph(*given), model(*given), strict=True):
                assert torch.equal(made, expected)


def test_explain_has_the_graphs_and_the_breaks():
    def f(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    said = torch._dynamo.explain(f)(torch.ones(4), torch.ones(4))
    assert (said.graph_count, said.graph_break_count, said.op_count) == (2, 1, 5)
    assert said.ops_per_graph == [[torch.abs, operator.add, operator.truediv, operator.lt], [operator.mul]]
    (reason,) = said.break_reasons
    assert reason.graph_break and [frame.name for frame in reason.user_stack] == ["f"] and "bool" in reason.reason
    assert len(said.graphs) == 2 and "truediv" in str(said) and "Graph Break Count: 1" in str(said)
    for plain in (lambda x: x, lambda x: 3):
        said = torch._dynamo.explain(plain)(torch.ones(3))
        assert (said.graph_count, said.graph_break_count, said.op_count) == (0, -1, 0)
    with pytest.warns(FutureWarning):
        assert torch._dynamo.explain(torch.compile(f), torch.ones(4), torch.ones(4)).graph_count == 2


def test_backends_can_print_what_nodes_hold():
    texts = []

    def backend(module, inputs):
        texts.extend(repr(node.meta["example_value"]) for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    assert texts == ["FakeTensor(..., size=(3,))"]
