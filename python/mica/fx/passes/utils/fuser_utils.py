"""Putting nodes of a graph into a module of their own."""

import copy

from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.passes.tools_common import legalize_graph, sorted_by_use
from mica.fx.proxy import Proxy

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "topo_sort",
    "validate_partition",
]


def topo_sort(nodes):
    """The nodes in an order in which values are made before they are used; otherwise as they were."""
    return sorted_by_use(list(nodes))


def validate_partition(partition):
    """Whether nodes can be one: no value that leaves them comes back by a way outside."""
    inside = set(partition)
    seen, todo = set(), [user for node in partition for user in node.users if user not in inside]
    while todo:
        node = todo.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            todo += node.users
    return True


def fuse_as_graphmodule(gm, nodes, module_name, partition_lookup_table=None, *, always_return_tuple=False):
    """(a module of copies of the nodes, the nodes whose values go in, those whose values are used outside)."""
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(f"{node} doesn't belong to passed in graph module {gm._get_name()}")
        if node._erased:
            raise AssertionError(f"{node} has been removed from owning graph")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    inside = set(nodes if partition_lookup_table is None else partition_lookup_table)
    graph, inputs, made = Graph(), {}, {}

    def value(node):
        if node in inside:
            return made[node]
        if node not in inputs:
            inputs[node] = graph.placeholder(node.name, type_expr=node.type)
            inputs[node].meta = copy.copy(node.meta)
        return inputs[node]

    for node in nodes:
        made[node] = graph.node_copy(node, value)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    results = tuple(made[node] for node in outputs)
    graph.output(results[0] if len(results) == 1 and not always_return_tuple else results)
    graph.lint()
    return GraphModule(gm, graph, module_name), tuple(inputs), tuple(outputs)


def insert_subgm(gm, sub_gm, orig_inputs, orig_outputs, insertion_point=None):
    """Call a module in the place of the nodes that it was made of; returns the module around it."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    if insertion_point is None:
        insertion_point = next((node for node in reversed(gm.graph.nodes) if node in orig_outputs), None)
        if insertion_point is None:
            raise AssertionError(
                "Cannot determine insertion point: no insertion_point provided and orig_outputs is empty."
            )
    with gm.graph.inserting_after(insertion_point):
        call = gm.graph.call_module(name, args=orig_inputs)
    if len(orig_outputs) == 1 and not isinstance(sub_gm.graph.output_node().args[0], tuple):
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return gm
    with gm.graph.inserting_before(call.next):
        for i, node in enumerate(orig_outputs):
            node.replace_all_uses_with(Proxy(call)[i].node, propagate_meta=True)
    if orig_outputs:
        call.meta["val"] = tuple(node.meta.get("val") for node in orig_outputs)
    return gm


def erase_nodes(gm, nodes):
    """Take nodes out, the last first."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(gm, partitions, prefix="fused_", always_return_tuple=False):
    """Put each of several sets of nodes into a module of its own, `fused_0` and so on; returns the module."""
    for i, partition in enumerate(partitions):
        nodes = topo_sort(partition)
        made, inputs, outputs = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{i}", partition, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, made, inputs, outputs, nodes[-1])
        erase_nodes(gm, nodes)
    legalize_graph(gm)
    gm.graph.lint()
    return gm
