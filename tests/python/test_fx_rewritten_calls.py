"""Passes of any kind, calls that are written in one way, types of items, where nodes come from, and pictures."""

import operator
import pickle
import sys
import types
import typing

import mica as torch
import mica.nn.functional as F
import pytest
from mica import fx, nn
from mica._subclasses.fake_tensor import FakeTensorMode
from mica.fx.experimental.normalize import NormalizeArgs, NormalizeOperators
from mica.fx.experimental.proxy_tensor import make_fx
from mica.fx.graph_module import reduce_graph_module
from mica.fx.operator_schemas import create_type_hint, type_matches
from mica.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes
from mica.fx.passes.graph_drawer import FxGraphDrawer
from mica.fx.passes.graph_manipulation import replace_target_nodes_with
from mica.fx.passes.pass_manager import (
    PassManager,
    inplace_wrapper,
    log_hook,
    loop_pass,
    these_before_those_pass_constraint,
    this_before_that_pass_constraint,
)
from mica.fx.passes.shape_prop import ShapeProp
from mica.fx.proxy import GraphAppendingTracer, MetaProxy, Proxy
from mica.fx.traceback import (
    NodeSource,
    NodeSourceAction,
    annotate_fn,
    get_current_replay_node,
    get_graph_provenance_json,
    preserve_node_meta,
    set_current_replay_node,
)


def first(found):
    return [*found, "first"]


def second(found):
    return [*found, "second"]


def test_passes_run_in_an_order_that_constraints_check():
    manager = PassManager([first, second])
    assert manager([]) == ["first", "second"]
    manager.add_pass(inplace_wrapper(list.clear))
    assert manager([]) == []
    manager.remove_pass(["clear"])
    manager.add_constraint(this_before_that_pass_constraint(first, second))
    assert manager([]) == ["first", "second"]
    manager.add_constraint(this_before_that_pass_constraint(second, first))
    with pytest.raises(RuntimeError, match="pass schedule constraint violated. Expected"):
        manager([])
    manager = PassManager.build_from_passlist([first])
    manager.replace_pass(first, second)
    assert manager([]) == ["second"]


def test_passes_that_wrap_others(caplog):
    assert loop_pass(first, 2)([]) == ["first", "first"]
    assert loop_pass(first, predicate=lambda found: len(found) < 3)([]) == ["first"] * 3
    with pytest.raises(AssertionError, match="Exactly one of `n_iter`or `predicate` must be specified."):
        loop_pass(first)
    allowed = these_before_those_pass_constraint(first, second)
    assert allowed(loop_pass(first, 2), second) and not allowed(loop_pass(second, 2), first)
    with caplog.at_level("INFO"):
        log_hook(first)([])
    assert "Return value: ['first']" in caplog.text


def test_targets_are_replaced():
    gm = fx.symbolic_trace(lambda x: torch.add(x, 1) * torch.add(x, 2))
    replace_target_nodes_with(gm, "call_function", torch.add, "call_method", "sub")
    gm.recompile()
    assert gm(torch.tensor(3)).item() == 2


class Pair(typing.NamedTuple):
    a: int
    b: str


@pytest.mark.parametrize(
    ("container", "items"),
    [(tuple[int, str], [int, str]), (list[float], [float, float]), (Pair, [int, str]), (tuple[int, ...], [int, int]),
     (dict[str, int], [None, None]), (tuple, [None, None]), (None, [None, None])],
)  # fmt: skip
def test_items_get_the_types_of_their_containers(container, items):
    graph = fx.Graph()
    made = graph.call_function(divmod, (graph.placeholder("x"), 2), type_expr=container)
    got = [graph.call_function(operator.getitem, (made, i)) for i in range(2)]
    annotate_getitem_nodes(graph)
    assert [node.type for node in got] == items


def test_an_item_beyond_the_type_is_refused():
    graph = fx.Graph()
    made = graph.call_function(divmod, (graph.placeholder("x"), 2), type_expr=tuple[int])
    graph.call_function(operator.getitem, (made, 3))
    with pytest.raises(AssertionError, match=r"Index 3 out of range for parameterized_types \(len=1\)"):
        annotate_getitem_nodes(graph)


def test_hints_of_types():
    assert create_type_hint([int, bool]) == list[int]
    assert create_type_hint((int, int)) == tuple[int, ...]
    assert create_type_hint([int, str]) == list[typing.Any]
    assert create_type_hint(()) == tuple[typing.Any, ...]
    assert create_type_hint(5) == 5
    with pytest.warns(UserWarning, match="We were not able to successfully create type hint"):
        assert create_type_hint([1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("wanted", "given", "fits"),
    [(int, bool, True), (float, int, False), (list[int], tuple[int, int], True), (list[int], list[float], False),
     (int | None, type(None), True), (torch.Tensor, nn.Parameter, True), (int, torch.dtype, True),
     (list[int], int, True), (list[int], list, False), (5, int, False)],
)  # fmt: skip
def test_types_that_fit(wanted, given, fits):
    assert type_matches(wanted, given) is fits


def lines(gm):
    return [line.partition(";")[0].strip() for line in gm.code.splitlines() if " = " in line]


def test_arguments_are_written_by_their_names():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(2, 2)

        def forward(self, x):
            return torch.flatten(torch.add(F.relu(self.l(x)), 1), 1).relu()

    gm = fx.symbolic_trace(Model())
    list(gm.graph.nodes)[-2].meta["mine"] = 7
    assert list(NormalizeArgs(gm).transform().graph.nodes)[-2].meta["mine"] == 7
    assert lines(NormalizeArgs(gm).transform()) == [
        "l = self.l(input = x)",
        "relu = torch.nn.functional.relu(input = l, inplace = False)",
        "add = torch.add(relu, 1)",  # which overload? the types are not known
        "flatten = torch.flatten(input = add, start_dim = 1, end_dim = -1)",
        "relu_1 = flatten.relu()",
    ]
    ShapeProp(gm).propagate(torch.ones(3, 2))
    typed = NormalizeArgs(gm).transform()
    assert "add = torch.add(input = relu, other = 1, alpha = 1)" in lines(typed)
    assert typed.graph.find_nodes(op="call_module", target="l")[0].meta["tensor_meta"].shape == (3, 2)
    assert "add = torch.add(relu, 1, alpha = 1)" in lines(NormalizeArgs(gm, False).transform())
    assert typed.graph.output_node().meta["tensor_meta"].shape == (3, 2)
    x = torch.randn(3, 2)
    assert torch.equal(typed(x), gm(x))
    next(iter(gm.graph.nodes)).type = list[torch.Tensor]
    assert next(iter(NormalizeArgs(gm).transform().graph.nodes)).type == list[torch.Tensor]
    of_two = fx.symbolic_trace(lambda x: torch.conv2d(x, x))
    ShapeProp(of_two).propagate(torch.ones(1, 1, 2, 2))
    assert "bias = None" in NormalizeArgs(of_two).transform().code


def test_functions_become_operators():
    gm = fx.symbolic_trace(lambda x, y: torch.lt(torch.add(x, y), torch.remainder(y, 2)) | torch.add(x, y, alpha=2))
    assert lines(NormalizeOperators(gm).transform()) == [
        "add = x + y", "mod = y % 2", "lt = add < mod", "add_1 = torch.add(x, y, alpha = 2)", "or_ = lt | add_1",
    ]  # fmt: skip


def test_nodes_have_sources():
    gm = fx.symbolic_trace(lambda x: torch.add(x, 1).relu())
    _, add, relu, _ = gm.graph.nodes
    source = NodeSource(add, "mine", NodeSourceAction.CREATE)
    relu.meta["from_node"] = [source]
    after = NodeSource(relu, "again", [NodeSourceAction.REPLACE, NodeSourceAction.CREATE])
    assert (after.name, after.target, after.graph_id) == ("relu", "relu", id(gm.graph))
    assert after.to_dict()["action"] == "replace+create"
    assert after.from_node == [source] and after.from_node[0] is not source
    assert NodeSource._from_dict(after.to_dict()) == after
    number = id(gm.graph)
    assert after.print_readable() == (
        f"(name=relu, pass_name=again, action=replace+create, graph_id={number})\n"
        f"    (name=add, pass_name=mine, action=create, graph_id={number})\n"
    )
    assert NodeSource(None, "p").to_dict() == {
        "name": "", "target": "", "graph_id": -1, "pass_name": "p", "action": "", "from_node": [],
    }  # fmt: skip
    with pytest.raises(AssertionError, match="Expected NodeSourceAction, got <class 'str'>"):
        NodeSource(add, "mine", "create")


def test_a_transformed_graph_says_where_it_comes_from():
    gm = fx.symbolic_trace(lambda x: torch.add(x, 1))
    found = get_graph_provenance_json(fx.Transformer(gm).transform().graph)
    assert [(each["name"], each["pass_name"], each["action"]) for each in found["add"]] == [
        ("add", "Interpreter_Transformer", "create")
    ]


def test_functions_are_annotated():
    @annotate_fn({"stage": 1})
    def sine(x):
        """The sine."""
        return x.sin()

    assert sine.__doc__ == "The sine."
    with preserve_node_meta():
        gm = make_fx(lambda x: sine(x).cos())(torch.ones(2))
    assert [node.meta.get("custom") for node in gm.graph.nodes] == [None, {"stage": 1}, None, None]


def test_the_replayed_node():
    node = fx.Graph().placeholder("x")
    with set_current_replay_node(node):
        assert get_current_replay_node() is node
    assert get_current_replay_node() is None


def test_proxies_know_what_their_values_are_like():
    graph, mode = fx.Graph(), FakeTensorMode()
    node = graph.placeholder("x")
    node.meta["val"] = mode.from_tensor(torch.ones(2, 3))
    proxy = MetaProxy(node, GraphAppendingTracer(graph), mode)
    made = torch.sum(torch.add(proxy, 1), 0)
    assert type(made) is MetaProxy and made.node.meta["val"].shape == (3,)
    assert type(proxy + 1) is Proxy and repr(made) == "MetaProxy(sum_1)"
    unknown = Proxy(graph.placeholder("y"), proxy.tracer)
    with pytest.raises(KeyError, match="val"):
        torch.add(proxy, unknown)


def test_a_module_of_code_is_traced():
    """As in a pickle of a graph module that torch wrote."""
    body = {**nn.Linear(2, 2).__dict__, "_code": "def forward(self, x, y = 3):\n    return self.weight @ x * torch.abs(y)",
            "meta": {"k": 1}, "_graphmodule_cls_name": "Mine"}  # fmt: skip
    body["training"] = False
    gm = reduce_graph_module(body, "import torch\nfrom math import inf\nNoneType = type(None)")
    assert type(gm).__name__ == "Mine" and gm.meta == {"k": 1} and not gm.training
    x, y = torch.randn(2), torch.tensor(-2.0)
    assert torch.equal(gm(x, y), body["_parameters"]["weight"] @ x * 2)
    again = pickle.loads(pickle.dumps(gm))
    assert again.code == gm.code


class Recorded:
    """Stands for pydot: notes what is drawn."""

    def __init__(self, *args, **options):
        self.args, self.options, self.nodes, self.edges = args, options, [], []

    def add_node(self, node):
        self.nodes.append(node)

    def add_edge(self, edge):
        self.edges.append(edge.args)


def test_graphs_are_drawn(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydot", types.SimpleNamespace(Dot=Recorded, Node=Recorded, Edge=Recorded))
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        output.args = (torch.add(Proxy(output.args[0]), 1, alpha=2).node,)
    drawer = FxGraphDrawer(gm, "name")
    dot = drawer.get_dot_graph()
    labels = {node.args[0]: node.options["label"] for node in dot.nodes}
    assert labels["_0"] == (
        f"{{name=%_0|op_code=call_module\n\\n{torch.typename(gm.get_submodule('0'))}\\n|in_features: 2\\nout_features: 2\\n}}"
    )
    assert labels["0.weight"] == "{0.weight|op_code=get_parametertorch.float32[2, 2]\\n}"
    assert labels["add"] == (
        "{name=%add|op_code=call_function\n|target=torch.add\\n|args=(1,)|kwargs=\\{alpha: 2,\\}|num_users=1\\n}"
    )
    assert ("0.bias", "_0") in dot.edges and ("_0", "_1") in dot.edges
    assert drawer.get_all_dot_graphs().keys() == {"name"}
    ShapeProp(gm).propagate(torch.ones(1, 2))
    shown = FxGraphDrawer(gm, "name", ignore_parameters_and_buffers=True, skip_node_names_in_args=False).get_dot_graph()
    labels = {node.args[0]: node.options["label"] for node in shown.nodes}
    assert "0.weight" not in labels
    assert "|args=(\\l%_1,\\n1,\\n)\\l" in labels["add"]
    assert labels["add"].endswith("|dtype=torch.float32\\n|shape=(1, 2)\\n|requires_grad=True\\n|stride=(2, 1)\\n}")


def test_drawing_needs_pydot(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(RuntimeError, match="FXGraphDrawer requires the pydot package to be installed."):
        FxGraphDrawer(fx.symbolic_trace(lambda x: x), "name")
