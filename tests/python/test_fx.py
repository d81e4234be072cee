"""Graphs of programs: mica.fx."""

import copy
import operator
import pickle

import mica
import mica.nn.functional as F
import numpy as np
import pytest
from mica import fx, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.weight = nn.Parameter(mica.full((4,), 2.0))
        self.layers = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))
        self.register_buffer("shift", mica.ones(4))

    def forward(self, x, y=2, *, flag=True):
        x = F.relu(self.linear(x)) + self.weight * self.shift
        z = mica.cat([x, x[:, :2]], dim=1)
        x = self.layers(x).view(x.size(0), -1)
        a, b = x.chunk(2, 1)
        return {
            "sum": x + y,
            "pair": (z, a.sum()),
            "negative": -b,
            "shape": x.shape[0],
            "more": mica.add(x, 1, alpha=2),
        }


def same(a, b):
    return all(mica.equal(a[k], b[k]) for k in ("sum", "negative", "more")) and mica.equal(a["pair"][0], b["pair"][0])


def test_trace_and_run():
    model, x = Model(), mica.randn(2, 3)
    traced = fx.symbolic_trace(model)
    assert isinstance(traced, fx.GraphModule) and type(traced).__name__ == "Model"
    assert same(traced(x), model(x)) and same(traced(x, 5), model(x, 5)) and traced(x)["shape"] == 2
    assert same(fx.Interpreter(traced).run(x), model(x)) and same(fx.Transformer(traced).transform()(x), model(x))
    assert same(copy.deepcopy(traced)(x), model(x)) and same(pickle.loads(pickle.dumps(traced))(x), model(x))
    assert dict(traced.named_parameters()).keys() == dict(model.named_parameters()).keys()
    traced(x)["sum"].sum().backward()
    assert model.weight.grad is not None  # parameters are the model's own
    assert same(model(x), model(x))  # modules call and look up as before


def test_a_module_of_two_graphs_copies_itself():
    """As torchvision's extractor of features does, from a body that holds copies of its attributes."""
    from mica.fx.graph_module import _USER_PRESERVED_ATTRIBUTES_KEY, _CodeOnlyModule, _copy_attr

    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    traced.meta[_USER_PRESERVED_ATTRIBUTES_KEY] = {"words": ["kept"]}
    body = _CodeOnlyModule(copy.deepcopy(traced.__dict__))
    assert isinstance(body, nn.Module) and list(body.state_dict()) == list(traced.state_dict())
    assert getattr(body, "0").weight is not getattr(traced, "0").weight
    made = nn.Module()
    for node in traced.graph.nodes:
        if node.op == "call_module":
            _copy_attr(body, made, node.target)
    assert list(made.state_dict()) == list(traced.state_dict())
    assert copy.deepcopy(traced).meta[_USER_PRESERVED_ATTRIBUTES_KEY] == {"words": ["kept"]}


def test_nodes():
    graph = fx.symbolic_trace(Model()).graph
    graph.lint()
    ops = [(node.op, node.name) for node in graph.nodes]
    assert ops[:4] == [("placeholder", "x"), ("placeholder", "y"), ("placeholder", "flag"), ("call_module", "linear")]
    assert ("get_attr", "weight") in ops and ("call_module", "layers_1") in ops and ops[-1] == ("output", "output")
    add = next(iter(graph.find_nodes(op="call_function", target=operator.add)))
    assert [str(each) for each in add.all_input_nodes] == ["relu", "mul"] and len(add.users) >= 3
    assert add.format_node().endswith("= call_function[target=operator.add](args = (%relu, %mul), kwargs = {})")
    assert str(graph).startswith("graph():\n    %x : [num_users=1] = placeholder[target=x]\n")


def test_code():
    code = fx.symbolic_trace(lambda x, y=1: mica.relu(x @ x) * y + x.mean(dim=-1, keepdim=True)).code
    assert code.strip() == (
        "def forward(self, x, y = 1):\n    matmul = x @ x\n    relu = torch.relu(matmul);  matmul = None\n"
        "    mul = relu * y;  relu = y = None\n    mean = x.mean(dim = -1, keepdim = True);  x = None\n"
        "    add = mul + mean;  mul = mean = None\n    return add"
    )


def test_changing_a_graph():
    traced = fx.symbolic_trace(lambda x, y: mica.relu(x + y) * 2)
    graph = traced.graph
    relu = graph.find_nodes(op="call_function", target=mica.relu)[0]
    with graph.inserting_after(relu):
        new = graph.call_function(mica.sigmoid, (relu.args[0],))
    relu.replace_all_uses_with(new)
    with pytest.raises(RuntimeError, match="still had 1 users"):
        graph.erase_node(new)
    graph.erase_node(relu)
    graph.lint()
    traced.recompile()
    x = mica.randn(3)
    assert mica.equal(traced(x, x), mica.sigmoid(x + x) * 2)
    matches = fx.replace_pattern(traced, lambda a, b: mica.sigmoid(a + b), lambda a, b: mica.tanh(a) - b)
    assert len(matches) == 1 and mica.equal(traced(x, x), (mica.tanh(x) - x) * 2)
    graph.call_function(mica.abs, (next(iter(graph.nodes)),))
    assert graph.eliminate_dead_code() and not graph.find_nodes(op="call_function", target=mica.abs)
    with pytest.raises(TypeError, match="does not support mutation"):
        graph.output_node().args[0].graph.output_node().kwargs["a"] = 1


@fx.wrap
def wrapped(x, n):
    return x * n if x.sum() > 0 else x


def test_wrapped_functions_and_leaves():
    traced = fx.symbolic_trace(lambda x: wrapped(x, 3) + 1)
    assert any(node.op == "call_function" and node.target.__name__ == "wrapped" for node in traced.graph.nodes)
    assert traced(mica.ones(2)).tolist() == [4, 4]

    class Whole(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    outer = nn.Sequential(Model().layers, nn.Tanh())
    assert [n.target for n in Whole().trace(outer).nodes if n.op == "call_module"] == ["0", "1"]


def test_concrete_arguments():
    def f(x, flag):
        return x + 1 if flag else x - 1

    traced = fx.symbolic_trace(f, {"flag": False})
    assert traced(mica.zeros(1), False).item() == -1
    with pytest.raises(AssertionError, match="flag has been specialized to have value False"):
        traced(mica.zeros(1), None)


def branching(x):
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (branching, fx.proxy.TraceError, "cannot be used as inputs to control flow"),
        (lambda x: len(x), RuntimeError, "'len' is not supported"),
        (lambda x: [y + 1 for y in x], fx.proxy.TraceError, "cannot be iterated"),
    ],
)
def test_what_cannot_be_traced(function, kind, words):
    with pytest.raises(kind, match=words):
        fx.symbolic_trace(function)


@pytest.mark.parametrize("number", [np.float64(2.5), np.complex128(2 + 1j), np.float64("inf")])
def test_code_with_numbers_of_numpy(number):
    """CTRL of transformers scales by numpy.sqrt of a size."""

    class Scaled(mica.nn.Module):
        def forward(self, x):
            return x * number

    x = mica.ones(2)
    assert mica.equal(mica.export.export(Scaled(), (x,)).module()(x), x * number.item())
    assert mica.equal(fx.symbolic_trace(Scaled())(x), x * number.item())


@pytest.mark.parametrize("function", [operator.or_, operator.and_, operator.add])
def test_operators_of_python_that_nobody_uses_are_dead(function):
    """The names of some end in an underscore, as those of functions that change an argument do."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(function, (x, x))
    graph.output(x)
    assert graph.eliminate_dead_code()
    assert [node.op for node in graph.nodes] == ["placeholder", "output"]
