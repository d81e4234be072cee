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


def default_partition(joint_module, _joint_inputs, *, num_fwd_outputs, **options):
    """(forward, backward): whatever does not need the gradients of the outputs is computed in the forward pass."""
    nodes = list(joint_module.graph.nodes)
    primals = [n for n in nodes if n.op == "placeholder" and not n.name.startswith("tangents")]
    tangents = [n for n in nodes if n.op == "placeholder" and n.name.startswith("tangents")]
    outputs = list(joint_module.graph.output_node().args[0])
    forward_outputs, backward_outputs = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
    position = {node: i for i, node in enumerate(nodes)}
    # The new values of inputs that the function changes come with its results.
    copies = [n for n in nodes if n.op == "call_function" and n.target is mica.ops.aten.copy_.default]
    changes = [n for n in copies if n.args[0] in primals]
    early = _needed((), [*forward_outputs, *changes])
    late = set(tangents)
    for node in nodes:
        # Nodes that only gradients need belong to the backward pass.
        if node.op == "call_function" and node not in early and not _is_item_of(node, late):
            late.add(node)
    saved, seen = [], set()
    wanted = _needed((), backward_outputs)
    for node in nodes:
        for used in node.all_input_nodes if node in late and node in wanted else ():
            if used not in late and used not in seen and used.op != "get_attr":
                seen.add(used)
                saved.append(used)
    for node in backward_outputs:
        if isinstance(node, Node) and node not in late and node not in seen and node.op != "get_attr":
            seen.add(node)
            saved.append(node)
    saved.sort(key=position.__getitem__)
    saved = [n for n in saved if not isinstance(n.meta.get("val"), (list, tuple)) or n.target is operator.getitem]
    forward = _extract(joint_module, primals, [*forward_outputs, *saved], changes)
    backward = _extract(joint_module, [*saved, *tangents], backward_outputs)
    return forward, backward


def min_cut_rematerialization_partition(
    joint_module, _joint_inputs, compiler="inductor", *, num_fwd_outputs, **options
):
    """The same cut as default_partition: Mica computes nothing a second time to save memory here."""
    return default_partition(joint_module, _joint_inputs, num_fwd_outputs=num_fwd_outputs)
