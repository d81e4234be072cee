"""Cutting the graph of a forward and a backward pass into two."""

import operator

import mica
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.node import Node, map_arg

__all__ = ["default_partition", "min_cut_rematerialization_partition"]


def _needed(inputs, outputs):
    """The nodes between some and others."""
    needed, stack = set(), [node for node in outputs if isinstance(node, Node)]
    while stack:
        node = stack.pop()
        if node in needed or node in inputs:
            continue
        needed.add(node)
        stack += node.all_input_nodes
    return needed


def _extract(joint, inputs, outputs, changes=()):
    """The part of a graph that computes some of its nodes from others, with the changes of inputs."""
    needed = _needed(inputs, [*outputs, *changes])
    graph, values = Graph(), {}
    for node in inputs:
        values[node] = graph.create_node("placeholder", node.name, (), {}, node.name)
        values[node].meta = dict(node.meta)
    for node in joint.graph.nodes:
        if node in needed:
            if node.op == "placeholder":
                raise RuntimeError(f"a part of the graph reads {node}, which it is not given")
            values[node] = graph.node_copy(node, values.__getitem__)
    graph.output(map_arg(tuple(outputs), values.__getitem__))
    return GraphModule(joint, graph)


def _is_item_of(node, late):
    """Whether a node takes one of several results that the forward pass has computed."""
    return node.target is operator.getitem and isinstance(node.args[0], Node) and node.args[0] not in late


class _Parts:
    """The inputs, the outputs and the changes of a joint graph, and what only gradients need."""

    def __init__(self, joint, num_fwd_outputs):
        self.joint, self.nodes = joint, list(joint.graph.nodes)
        inputs = [n for n in self.nodes if n.op == "placeholder"]
        self.primals = [n for n in inputs if not n.name.startswith("tangents")]
        self.tangents = [n for n in inputs if n.name.startswith("tangents")]
        outputs = list(joint.graph.output_node().args[0])
        self.forward_outputs, self.backward_outputs = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
        # The new values of inputs that the function changes come with its results.
        copies = [n for n in self.nodes if n.op == "call_function" and n.target is mica.ops.aten.copy_.default]
        changes = [n for n in copies if n.args[0] in self.primals]
        self.changes = [n for n in changes if not n.meta.get("in_backward")]
        self.late_changes = [n for n in changes if n.meta.get("in_backward")]
        self.early = _needed((), [*self.forward_outputs, *self.changes])
        self.wanted = _needed((), [*self.backward_outputs, *self.late_changes])

    def cut(self, saved):
        """(forward, backward) modules, the second of which is given these values of the first."""
        forward = _extract(self.joint, self.primals, [*self.forward_outputs, *saved], self.changes)
        return forward, _extract(self.joint, [*saved, *self.tangents], self.backward_outputs, self.late_changes)


def default_partition(joint_module, _joint_inputs, *, num_fwd_outputs, **options):
    """(forward, backward): the forward pass computes what its results need, and nothing is computed twice."""
    parts = _Parts(joint_module, num_fwd_outputs)
    position = {node: i for i, node in enumerate(parts.nodes)}
    late = set(parts.tangents)
    for node in parts.nodes:
        # Nodes that only gradients need belong to the backward pass.
        if node.op == "call_function" and node not in parts.early and not _is_item_of(node, late):
            late.add(node)
    found = {used for node in parts.nodes if node in late and node in parts.wanted for used in node.all_input_nodes}
    found.update(node for node in parts.backward_outputs if isinstance(node, Node))
    saved = sorted((n for n in found if n not in late and n.op != "get_attr"), key=position.__getitem__)
    saved = [n for n in saved if not isinstance(n.meta.get("val"), (list, tuple)) or n.target is operator.getitem]
    return parts.cut(saved)


def min_cut_rematerialization_partition(
    joint_module, _joint_inputs, compiler="inductor", *, num_fwd_outputs, **options
):
    """(forward, backward): what is kept for the backward pass has as few bytes as can be, and operators that cost little
    are computed there again."""
    from mica._functorch.minimal_cut import values_to_keep

    parts = _Parts(joint_module, num_fwd_outputs)
    late = {*parts.tangents, *parts.late_changes}
    for node in parts.nodes:
        if any(used in late for used in node.all_input_nodes):
            late.add(node)
    return parts.cut(values_to_keep(parts.nodes, late, parts.wanted, parts.backward_outputs))
