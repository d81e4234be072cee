"""Graphs that are cut into modules, their sizes, and what a backend takes of them."""

import mica as torch
import pytest
from mica import fx, nn
from mica.fx.passes.graph_manipulation import get_size_of_all_nodes, get_size_of_node, get_tensor_meta, size_bytes
from mica.fx.passes.operator_support import create_op_support
from mica.fx.passes.param_fetch import extract_attrs_for_lowering, lift_lowering_attrs_to_nodes
from mica.fx.passes.shape_prop import ShapeProp
from mica.fx.passes.split_module import split_module_simple
from mica.fx.passes.split_utils import getattr_recursive, setattr_recursive, split_by_tags
from mica.fx.passes.splitter_base import FxNetAccNodesFinder, generate_inputs_for_submodules
from mica.fx.passes.tools_common import FxNetAccFusionsFinder, get_acc_ops_name, is_node_output_tensor
from mica.fx.passes.utils import HolderModule, compare_graphs, lift_subgraph_as_module


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(2, 2)
        self.blk = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.p = nn.Parameter(torch.ones(2))
        self.register_buffer("bf", torch.zeros(2))

    def forward(self, x, y):
        a = self.blk(self.l1(x)) + self.p
        b = torch.add(a, y) + self.bf
        return b.relu() * 2, b


TAGS = {"l1": "a", "blk_0": "a", "blk_1": "b", "add": "b", "add_1": "c", "add_2": "c", "relu": "c", "mul": "d"}


def tagged():
    gm = fx.symbolic_trace(Model())
    for node in gm.graph.nodes:
        if node.name in TAGS:
            node.tag = TAGS[node.name]
    return gm


def test_a_graph_is_cut_by_tags():
    gm = tagged()
    split, places = split_by_tags(gm, ["a", "b", "c", "d"], return_fqn_mapping=True)
    assert places == {"l1": "a.l1", "blk.0": "a.blk.0", "blk.1": "b.blk.1", "p": "b.p", "bf": "c.bf"}
    assert split.code.split() == [
        "def",
        "forward(self,",
        "x,",
        "y):",
        "a",
        "=",
        "self.a(x);",
        "x",
        "=",
        "None",
        "b",
        "=",
        "self.b(a);",
        "a",
        "=",
        "None",
        "c",
        "=",
        "self.c(b,",
        "y);",
        "b",
        "=",
        "y",
        "=",
        "None",
        "getitem",
        "=",
        "c[0]",
        "getitem_1",
        "=",
        "c[1];",
        "c",
        "=",
        "None",
        "d",
        "=",
        "self.d(getitem);",
        "getitem",
        "=",
        "None",
        "return",
        "(d,",
        "getitem_1)",
    ]
    assert split.b.p is gm.p
    x, y = torch.randn(3, 2), torch.randn(2)
    assert all(torch.equal(ours, whole) for ours, whole in zip(split(x, y), gm(x, y), strict=True))
    tuples = split_by_tags(gm, ["a", "b", "c", "d"], return_tuple=True)
    assert isinstance(tuples.a(x), tuple)
    assert torch.equal(tuples(x, y)[0], gm(x, y)[0])


def test_the_results_of_exported_programs_keep_their_form():
    gm = torch.export.export(Model(), (torch.ones(3, 2), torch.ones(2))).module()
    for node in gm.graph.nodes:
        node.tag = "only"
    x, y = torch.randn(3, 2), torch.randn(2)
    assert all(
        torch.equal(ours, whole) for ours, whole in zip(split_by_tags(gm, ["only"])(x, y), gm(x, y), strict=True)
    )


def test_tags_that_do_not_fit_are_refused():
    with pytest.raises(KeyError, match="d"):
        split_by_tags(tagged(), ["a", "b", "c"])
    with pytest.raises(AssertionError, match="Component b order must be >= max of its upstream components, order=2"):
        split_by_tags(tagged(), ["d", "c", "b", "a"])
    with pytest.raises(AssertionError, match="Node does not have tag: %l1"):
        split_by_tags(fx.symbolic_trace(Model()), ["a"])


def test_attributes_at_the_output_stay_with_the_whole():
    class Weights(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(2, 2)

        def forward(self, x):
            return {"sum": x + self.l.weight, "weight": self.l.weight, "x": x}

    gm = fx.symbolic_trace(Weights())
    next(node for node in gm.graph.nodes if node.name == "add").tag = "only"
    split = split_by_tags(gm, ["only"])
    assert dict(split.named_parameters()).keys() == {"l_weight"}
    assert torch.equal(split(torch.ones(2, 2))["sum"], gm.l.weight + 1)


def test_split_module_simple():
    gm = fx.symbolic_trace(lambda x, y: (((x + y) * 2).relu() - (x + y), y))
    nodes = [node for node in gm.graph.nodes if node.op.startswith("call")]
    split = split_module_simple(gm, {node: i // 2 for i, node in enumerate(nodes)}, partition_affix="part")
    assert [name for name, _ in split.named_children()] == ["submod_part_0", "submod_part_1", "submod_part_2"]
    x, y = torch.randn(2), torch.randn(2)
    assert torch.equal(split(x, y)[0], gm(x, y)[0])
    with pytest.raises(KeyError):
        split_module_simple(gm, {})
    with pytest.raises(KeyError, match="mul"):  # 0 reads from 1, which reads from 0
        split_module_simple(gm, dict(zip(nodes, (0, 1, 0, 1, 0), strict=True)))
    model = tagged()
    with pytest.raises(KeyError, match="p"):
        split_module_simple(model, {node: 0 for node in model.graph.nodes if node.op.startswith("call")})


def test_parts_of_graphs_become_modules():
    gm, graph = fx.symbolic_trace(Model()), fx.Graph()
    called = graph.call_module("blk.0", (graph.placeholder("x"),))
    graph.output(graph.call_function(torch.add, (called, graph.get_attr("p"))))
    module, places = lift_subgraph_as_module(gm, graph, comp_name="comp", class_name="Part")
    assert type(module).__name__ == "Part"
    assert places == {"blk.0": "comp.blk.0", "p": "comp.p"}
    assert module.p is gm.p and module.get_submodule("blk.0") is gm.get_submodule("blk.0")
    assert dict(HolderModule({"a": gm.l1}).named_children()) == {"a": gm.l1}


def test_graphs_are_compared():
    def graph(function):
        return fx.symbolic_trace(function).graph

    first = graph(lambda x, y: (x + y) * 2)
    assert compare_graphs(first, graph(lambda a, b: (a + b) * 2))
    assert not compare_graphs(first, graph(lambda a, b: (a + b) * 3))
    assert not compare_graphs(first, graph(lambda a: (a + a) * 2))
    assert not compare_graphs(first, graph(lambda a, b: ((a + b) * 2, a)))


def test_attributes_at_paths():
    model = Model()
    assert getattr_recursive(model, "blk.0.weight") is model.blk[0].weight
    assert getattr_recursive(model, "blk.9.weight") is None
    setattr_recursive(model, "blk.more", 3)
    assert model.blk.more == 3
    with pytest.raises(AttributeError):
        setattr_recursive(model, "absent.more", 3)


def test_sizes_of_nodes_in_bytes():
    gm = fx.symbolic_trace(Model())
    nodes = {node.name: node for node in gm.graph.nodes}
    with pytest.raises(RuntimeError, match="Node x has no tensor metadata associated with it!"):
        get_tensor_meta(nodes["x"])
    get_size_of_all_nodes(gm, [torch.ones(4, 2), torch.ones(1)])
    assert nodes["l1"].size_bytes == size_bytes(output_size=32, total_size=56)
    assert nodes["p"].size_bytes == (8, 8) == get_size_of_node(gm, nodes["p"])
    assert not hasattr(nodes["output"], "size_bytes")


def test_options_of_layers_for_a_backend():
    layer = nn.Conv2d(1, 1, 1)
    found = extract_attrs_for_lowering(layer)
    assert found.pop("weight") is layer.weight and found.pop("bias") is layer.bias
    assert found == {
        "name": torch.typename(layer), "kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0),
        "dilation": (1, 1), "groups": 1, "padding_mode": "zeros",
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="nn.modules.conv.Conv3d is not in the module_fetch_book yet"):
        extract_attrs_for_lowering(nn.Conv3d(1, 1, 1))
    gm = fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    lift_lowering_attrs_to_nodes(gm)
    assert [getattr(node, "attrs_for_lowering", None) for node in gm.graph.nodes] == [
        None,
        {"name": torch.typename(nn.ReLU()), "inplace": False},
        None,
    ]


def with_sizes(x):
    a = x + 1
    b = torch.relu(a).view(a.size()[0], -1) * 2
    return torch.split(b + x.dim(), 1)[0].relu()


def shaped():
    gm = fx.symbolic_trace(with_sizes)
    ShapeProp(gm).propagate(torch.ones(2, 3))
    return gm


CALLS = {"add", "add_1", "dim", "getitem", "getitem_1", "mul", "relu", "relu_1", "size", "split", "view"}


@pytest.mark.parametrize(
    ("refused", "left_out"),
    [("view", {"view", "size", "getitem"}), ("dim", {"dim", "add_1"}), ("split", {"split", "getitem_1"}),
     ("add_1", {"add_1", "dim"}), ("mul", {"mul"}), ("nothing", set())],
)  # fmt: skip
def test_numbers_do_not_go_between_a_backend_and_the_cpu(refused, left_out):
    support = create_op_support(lambda submodules, node: node.name != refused)
    gm = shaped()
    assert {node.name for node in FxNetAccNodesFinder(gm, support, False)()} == CALLS - left_out
    assert {node.name for node in FxNetAccNodesFinder(gm, support, True)()} == CALLS - {refused}


def test_nodes_that_hand_on_numbers_stay_together():
    gm = shaped()
    nodes = {node for node in gm.graph.nodes if node.op.startswith("call")}
    groups = FxNetAccFusionsFinder(gm, nodes)()
    found = {node.name: {each.name for each in group} for node, group in groups.items()}
    sizes, dim = {"size", "getitem", "view"}, {"dim", "add_1"}
    assert found == {**dict.fromkeys(sizes, sizes), **dict.fromkeys(dim, dim)}
    nodes -= {node for node in nodes if node.name == "dim"}
    assert "add_1" not in {node.name for node in FxNetAccFusionsFinder(gm, nodes)()}


def test_names_and_kinds_of_nodes():
    assert get_acc_ops_name(torch.add) == "torch.add"
    assert get_acc_ops_name(nn.Linear) == "torch.nn.modules.linear.Linear"
    assert get_acc_ops_name("acc_ops.add") == "acc_ops.add"
    kinds = {node.name: is_node_output_tensor(node) for node in shaped().graph.nodes}
    assert kinds["add"] and not kinds["size"] and not kinds["split"]


def test_inputs_of_submodules():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1)))
    found = generate_inputs_for_submodules(model, (torch.ones(1, 2),), ["0", "1.1", "absent"])
    assert {name: [each.shape for each in inputs] for name, inputs in found.items()} == {"0": [(1, 2)], "1.1": [(1, 3)]}
    with pytest.raises(RuntimeError):
        generate_inputs_for_submodules(model, (torch.ones(1, 9),), ["0"])
    assert not model[0]._forward_pre_hooks
