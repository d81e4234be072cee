"""Modules made quicker by rewriting their graphs."""

import copy

from mica import nn
from mica.fx import Graph, GraphModule, Node, Transformer, symbolic_trace
from mica.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["extract_subgraph", "fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_FUSED = (
    (nn.Conv1d, nn.BatchNorm1d, fuse_conv_bn_eval),
    (nn.Conv2d, nn.BatchNorm2d, fuse_conv_bn_eval),
    (nn.Conv3d, nn.BatchNorm3d, fuse_conv_bn_eval),
    (nn.Linear, nn.BatchNorm1d, fuse_linear_bn_eval),
)


def matches_module_pattern(pattern, node, modules):
    """Whether a node, and the one that its first argument is, call modules of these two types."""
    if not node.args:
        return False
    return all(
        isinstance(each, Node) and each.op == "call_module" and type(modules.get(each.target)) is wanted
        for wanted, each in zip(pattern, (node.args[0], node), strict=True)
    )


def replace_node_module(node, modules, new_module):
    """Put another module where a node calls one; `modules` are all of the root, by their names."""
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model, inplace=False, no_trace=False):
    """The model in evaluation with normalisations put into the convolutions and linear layers before them.

    The model itself stays as it is unless `inplace`. A graph module is not traced again with `no_trace`.
    """
    model = model if inplace else copy.deepcopy(model)
    traced = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules, graph = dict(traced.named_modules()), copy.deepcopy(traced.graph)
    for first, second, fused in _FUSED:
        for node in graph.nodes:
            if not matches_module_pattern((first, second), node, modules):
                continue
            before, norm = node.args[0], modules[node.target]
            if len(before.users) > 1 or not norm.track_running_stats:
                continue
            replace_node_module(before, modules, fused(modules[before.target], norm))
            node.replace_all_uses_with(before)
            graph.erase_node(node)
    return GraphModule(traced, graph)


def remove_dropout(model):
    """The model without its dropout layers."""

    class WithoutDropout(Transformer):
        def call_module(self, target, args, kwargs):
            if not isinstance(self.submodules[target], nn.Dropout):
                return super().call_module(target, args, kwargs)
            if len(args) != 1:
                raise AssertionError(f"Expected 1 arg for Dropout, got {len(args)}")
            return args[0]

    return WithoutDropout(symbolic_trace(model)).transform()


def extract_subgraph(orig_module, nodes, inputs, outputs):
    """A module that runs some nodes of a graph, in their order."""
    graph, values = Graph(), {}
    for node in inputs:
        values[node] = graph.placeholder(node.name)
    for node in nodes:
        values[node] = graph.node_copy(node, values.__getitem__)
    graph.output([values[node] for node in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)
