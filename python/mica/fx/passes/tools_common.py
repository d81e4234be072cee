"""Small tools over graphs."""

import heapq

from mica._checkpoints.names import torch_module_name
from mica.fx.node import qualified_name

__all__ = ["get_node_target", "legalize_graph", "stable_topological_sort"]

CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_node_target(submodules, node):
    """What a node calls, by its full name: of a module its class, of a method its name."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of {', '.join(sorted(CALLABLE_NODE_OPS))}, but found {node.op}")
    if node.op == "call_method":
        return node.target
    if node.op == "call_function":
        target = node.target
        by_overload = qualified_name(target)
        return f"_operator.{target.__name__}" if target.__module__ == "_operator" else by_overload
    kind = type(submodules[node.target])
    return f"{torch_module_name(kind.__module__)}.{kind.__qualname__}"


def sorted_by_use(nodes):
    """The nodes in an order in which values are made before they are used; of those that are ready, the earlier first."""
    order = {node: i for i, node in enumerate(nodes)}
    missing = {node: sum(used in order for used in node.all_input_nodes) for node in nodes}
    ready = [order[node] for node in nodes if missing[node] == 0]
    heapq.heapify(ready)
    found = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        found.append(node)
        for user in node.users:
            if user in order:
                missing[user] -= 1
                if missing[user] == 0:
                    heapq.heappush(ready, order[user])
    if len(found) != len(nodes):
        raise RuntimeError(f"Input graph has cycles, unable to add {[node for node in nodes if missing[node]]}")
    return found


def legalize_graph(gm):
    """Put the nodes of a module's graph into an order in which values are made before they are used; returns the module."""
    for node in sorted_by_use(list(gm.graph.nodes)):
        gm.graph._root.prepend(node)
    gm.recompile()
    return gm


stable_topological_sort = legalize_graph
