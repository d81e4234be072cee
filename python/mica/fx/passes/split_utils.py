"""Cutting a graph into modules by the tags of its nodes."""

import copy
import dataclasses
import operator

from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.node import map_arg
from mica.fx.passes.utils.common import HolderModule, lift_subgraph_as_module

__all__ = ["Component", "getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj, name):
    """The attribute at a path with dots; None if a part of the path is not there."""
    for part in name.split("."):
        if not hasattr(obj, part):
            return None
        obj = getattr(obj, part)
    return obj


def setattr_recursive(obj, attr, value):
    """Set the attribute at a path with dots, whose parts but the last are there."""
    *path, last = attr.split(".")
    for part in path:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@dataclasses.dataclass
class Component:
    """A part of a graph that becomes a module: its nodes, what it reads and what others read of it."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list = dataclasses.field(default_factory=list)
    orig_inputs: list = dataclasses.field(default_factory=list)
    orig_outputs: list = dataclasses.field(default_factory=list)
    getattr_maps: dict = dataclasses.field(default_factory=dict)
    constructor_args: list = dataclasses.field(default_factory=list)
    gm: GraphModule | None = None


class _Split:
    """The parts of a graph while it is cut."""

    def __init__(self, gm, tags):
        self.gm = gm
        self.parts = {tag: Component(Graph(), order, tag) for order, tag in enumerate(tags)}
        self.part_of, self.copies = {}, {}

    def add(self, node):
        """Copy a node with a tag into the part of that tag."""
        if not hasattr(node, "tag"):
            raise AssertionError(f"Node does not have tag: {node.format_node()}")
        part = self.parts[node.tag]
        before = [self.part_of[used].order for used in node.all_input_nodes if used in self.part_of]
        if before and part.order < max(before):
            raise AssertionError(
                f"Component {part.name} order must be >= max of its upstream components, order={part.order} and "
                f"max={max(before)}"
            )
        self.copies[node] = part.graph.node_copy(node, lambda used: self.value_in(part, used))
        self.part_of[node] = part

    def value_in(self, part, node):
        """What stands for a node of the whole graph within a part."""
        if self.part_of.get(node) is part:
            return self.copies[node]
        if node.op == "get_attr":
            if node not in part.getattr_maps:
                part.getattr_maps[node] = part.graph.get_attr(node.target, type_expr=node.type)
                part.getattr_maps[node].meta = copy.copy(node.meta)
            return part.getattr_maps[node]
        if node not in part.orig_inputs:
            placeholder = part.graph.placeholder(node.name, type_expr=node.type)
            placeholder.meta = copy.copy(node.meta)
            part.orig_inputs.append(node)
            part.input_placeholders.append(placeholder)
            self.hand_out(node)
        return part.input_placeholders[part.orig_inputs.index(node)]

    def hand_out(self, node):
        """A node is read outside of its part, which has to return it."""
        part = self.part_of.get(node)
        if part is not None and node not in part.orig_outputs:
            part.orig_outputs.append(node)

    def lift(self, part, returns_tuple):
        """Make the module of a part; returns where its attributes are."""
        results = tuple(self.copies[node] for node in part.orig_outputs)
        if results:
            part.graph.output(results[0] if len(results) == 1 and not returns_tuple else results)
        part.gm, places = lift_subgraph_as_module(self.gm, part.graph, comp_name=part.name)
        return places


def _call(graph, part, values, returns_tuple):
    """Call a part in the graph of the whole, and note its results in `values`."""
    called = graph.call_module(part.name, tuple(values[node] for node in part.orig_inputs))
    if len(part.orig_outputs) == 1 and not returns_tuple:
        values[part.orig_outputs[0]] = called
        return
    for i, node in enumerate(part.orig_outputs):
        values[node] = graph.call_function(operator.getitem, (called, i))


def split_by_tags(gm, tags, return_fqn_mapping=False, return_tuple=False, GraphModuleCls=GraphModule):
    """A module that calls one module per tag, in the order of the tags: `node.tag` says to which a node belongs.

    Tags of placeholders, of the output and of attributes do not count; attributes go where they are used. A node's
    tag must not be before those of its inputs. A part with one result returns it, or a tuple of it with
    `return_tuple`. With `return_fqn_mapping` the result is a pair: the module, and where the modules and attributes
    of `gm` are in it.
    """
    split, main, values, attributes = _Split(gm, tags), Graph(), {}, {}
    main.set_codegen(copy.deepcopy(gm.graph._codegen))  # how inputs and results are nested
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            values[node] = main.placeholder(node.name, type_expr=node.type)
            values[node].meta = copy.copy(node.meta)
        elif node.op not in ("get_attr", "output"):
            split.add(node)
    output = gm.graph.output_node()
    for node in output.all_input_nodes:
        split.hand_out(node)
        if node.op == "get_attr":
            values[node] = main.get_attr(node.name, type_expr=node.type)
            attributes[node.name] = getattr_recursive(gm, node.target)
    places = {}
    for part in split.parts.values():
        places.update(split.lift(part, return_tuple))
        _call(main, part, values, return_tuple)
    main.output(map_arg(output.args[0], values.__getitem__))
    root = HolderModule({part.name: part.gm for part in split.parts.values()})
    for name, value in attributes.items():
        setattr(root, name, value)
    made = GraphModuleCls(root, main)
    return (made, places) if return_fqn_mapping else made
