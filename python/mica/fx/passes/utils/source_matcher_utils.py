"""Finding the nodes that a function or a layer of the program became."""

import dataclasses

from mica._checkpoints.names import torch_module_name
from mica.fx.node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclasses.dataclass
class SourcePartition:
    """The nodes of one call, what goes in and what comes out."""

    nodes: list
    source: object
    input_nodes: list = dataclasses.field(default_factory=list)
    output_nodes: list = dataclasses.field(default_factory=list)
    params: list = dataclasses.field(default_factory=list)


def _sources(node, wanted):
    """(source, the name of the call) of a node: by its stack of functions, by the function that was called, by its layer."""
    if (stack := node.meta.get("source_fn_stack")) is not None:
        name, source = stack[-1]
        return (source, name) if source in wanted else None
    if (called := node.meta.get("torch_fn")) is not None:
        source = called[1].split(".")[1]
        if source in wanted:
            return source, called[0]
    layers = node.meta.get("nn_module_stack") if node.op == "call_function" else None
    if not layers:
        return None
    path, kind = list(layers.values())[-1]
    for source in wanted:
        if isinstance(source, type) and isinstance(kind, type):
            fits = issubclass(kind, source)
        elif isinstance(source, type):
            fits = kind == f"{torch_module_name(source.__module__)}.{source.__qualname__}"
        else:
            fits = kind == source
        if fits:
            return source, path
    return None


def _partition(nodes, source):
    inputs, outputs, params = {}, {}, {}
    for node in nodes:
        inputs |= dict.fromkeys(
            arg for arg in node.args if isinstance(arg, Node) and arg not in nodes and arg.op != "get_attr"
        )
        if node.op == "get_attr":
            params[node] = None
        elif any(user not in nodes for user in node.users):
            outputs[node] = None
    return SourcePartition(nodes, source, list(inputs), list(outputs), list(params))


def get_source_partitions(graph, wanted_sources, filter_fn=None):
    """source -> its partitions in a graph, in order. A source is a function, the name of one, or a class of layers.

    With `filter_fn`, those all of whose nodes it accepts.
    """
    found = {}
    for node in graph.nodes:
        if (known := _sources(node, wanted_sources)) is not None:
            found.setdefault(known[0], {}).setdefault(known[1], []).append(node)
    accepted = lambda nodes: filter_fn is None or all(map(filter_fn, nodes))  # noqa: E731
    return {
        source: [_partition(nodes, source) for nodes in calls.values() if accepted(nodes)]
        for source, calls in found.items()
    }


def check_subgraphs_connected(subgraph1, subgraph2):
    """Whether a node of the second uses one of the first."""
    return any(user in subgraph2.nodes for node in subgraph1.nodes for user in node.users)
