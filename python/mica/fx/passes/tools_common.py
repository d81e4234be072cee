"""Small tools over graphs."""

import heapq

from mica.fx.node import Node

__all__ = ["legalize_graph"]


def legalize_graph(gm):
    """Put the nodes of a module's graph into an order in which values are made before they are used; returns the module.

    Of nodes that are ready, the one comes first that came first before.
    """
    nodes = list(gm.graph.nodes)
    order = {node: i for i, node in enumerate(nodes)}
    missing = {node: len(node.all_input_nodes) for node in nodes}
    ready = [order[node] for node in nodes if missing[node] == 0]
    heapq.heapify(ready)
    sorted_nodes: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        sorted_nodes.append(node)
        for user in node.users:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, order[user])
    if len(sorted_nodes) != len(nodes):
        raise RuntimeError(f"Input graph has cycles, unable to add {[node for node in nodes if missing[node]]}")
    for node in sorted_nodes:
        gm.graph._root.prepend(node)
    gm.recompile()
    return gm
