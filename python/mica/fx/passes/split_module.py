"""Cutting a graph into modules that are called one after the other."""

import collections

from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.node import map_arg
from mica.nn import Module

__all__ = ["Partition", "split_module", "split_module_simple"]


class Partition:
    """The nodes of one module, what they read from others, and what others read from them."""

    def __init__(self, name):
        self.name, self.submod_name = name, f"submod_{name}"
        self.node_names, self.inputs, self.outputs = [], {}, {}
        self.dependencies, self.graph, self.environment = {}, Graph(), {}

    def __repr__(self):
        return f"name: {self.name},\n nodes: {self.node_names},\n inputs: {list(self.inputs)},\n outputs: {list(self.outputs)}"


def _ordered(partitions):
    """The partitions so that each comes after those that it reads from."""
    waiting = {name: set(part.dependencies) for name, part in partitions.items()}
    order = []
    while waiting:
        ready = [name for name, needs in waiting.items() if not needs]
        if not ready:
            raise RuntimeError("cycle exists between partitions!")
        order.append(ready[0])
        del waiting[ready[0]]
        for needs in waiting.values():
            needs.discard(ready[0])
    return order


def split_module(m, root_m, split_callback, qualname_map=None, keep_original_order=False,
                 keep_original_node_name=False, keep_original_input_name=True, *, partition_affix=None, **options):  # fmt: skip
    """A module that calls submod_0, submod_1 and so on: `split_callback(node)` says of each node to which it belongs."""
    if options:
        raise NotImplementedError(f"split_module: Mica has no {', '.join(options)}")
    partitions, owner = collections.OrderedDict(), {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        name = str(split_callback(node))
        owner[node] = partitions.setdefault(
            name, Partition(name if partition_affix is None else f"{partition_affix}_{name}")
        )
        owner[node].node_names.append(node.name)
    keys = {part.name: name for name, part in partitions.items()}
    for node in m.graph.nodes:
        for used in node.all_input_nodes:
            ours, theirs = owner.get(node), owner.get(used)
            if used.op == "get_attr" or ours is theirs:
                continue
            if theirs is not None:
                theirs.outputs.setdefault(used.name)
            if ours is not None:
                ours.inputs.setdefault(used.name)
                if theirs is not None:
                    ours.dependencies.setdefault(keys[theirs.name])
    by_name = {node.name: node for node in m.graph.nodes}
    root = Module()
    for part in partitions.values():
        _fill(part, m, owner, by_name, keep_original_node_name, keep_original_input_name)
        root.add_module(part.submod_name, GraphModule(m, part.graph))
        if qualname_map is not None:
            for node in part.graph.nodes:
                if node.op in ("call_module", "get_attr"):
                    qualname_map[f"{part.submod_name}.{node.target}"] = node.target
    order = list(partitions) if keep_original_order else _ordered(partitions)
    return _base(m, root, partitions, order, by_name)


def _fill(part, m, owner, by_name, keeps_names, keeps_input_names):
    """The graph of one partition."""
    values = part.environment
    for number, name in enumerate(part.inputs):
        called = name if keeps_input_names else f"arg_{number}"
        values[by_name[name]] = part.graph.placeholder(called, by_name[name].type)
        values[by_name[name]].meta = dict(by_name[name].meta)
    for node in m.graph.nodes:
        if node.op == "get_attr" and any(owner.get(user) is part for user in node.users):
            values[node] = part.graph.node_copy(node)
        elif owner.get(node) is part:
            args, kwargs = (map_arg(each, values.__getitem__) for each in (node.args, node.kwargs))
            name = node.name if keeps_names else None
            values[node] = part.graph.create_node(node.op, node.target, args, kwargs, name, node.type)
            values[node].meta = dict(node.meta)
    results = tuple(values[by_name[name]] for name in part.outputs)
    part.graph.output(results[0] if len(results) == 1 else results)


def _base(m, root, partitions, order, by_name):
    """The module that calls the others."""
    graph, values = Graph(), {}
    for node in m.graph.nodes:
        if node.op == "placeholder":
            values[node] = graph.node_copy(node)
        elif node.op == "get_attr" and any(user.op == "output" for user in node.users):
            values[node] = graph.node_copy(node)
            setattr(root, node.target, getattr(m, node.target))
    for name in order:
        part = partitions[name]
        called = graph.call_module(part.submod_name, tuple(values[by_name[each]] for each in part.inputs))
        for i, each in enumerate(part.outputs):
            values[by_name[each]] = called if len(part.outputs) == 1 else _item(graph, called, i)
    output = m.graph.output_node()
    graph.output(map_arg(output.args[0], values.__getitem__))
    return GraphModule(root, graph)


def _item(graph, node, i):
    import operator

    return graph.call_function(operator.getitem, (node, i))


def split_module_simple(m, node_to_partition, *, partition_affix=None):
    """The same as `split_module` for graphs whose partitions are given by a dict of all nodes that compute.

    The partitions run in the order of their first nodes. A graph with attributes (`get_attr`) is refused with
    KeyError, and so is one whose partitions read from later ones.
    """
    place = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op == "get_attr":
            raise KeyError(node.name)
        mine = place.setdefault(node_to_partition[node], len(place))
        for used in node.all_input_nodes:
            if used.op != "placeholder" and place[node_to_partition[used]] > mine:
                raise KeyError(used.name)
    return split_module(
        m, None, node_to_partition.__getitem__, keep_original_order=True, partition_affix=partition_affix
    )
