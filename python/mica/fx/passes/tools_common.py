"""Small tools over graphs."""

import heapq

import mica
from mica._checkpoints.names import torch_module_name
from mica.fx.node import Node, qualified_name

__all__ = [
    "FxNetAccFusionsFinder", "get_acc_ops_name", "get_node_target", "is_node_output_tensor", "legalize_graph",
    "stable_topological_sort",
]  # fmt: skip

Tensors = tuple[mica.Tensor] | list[mica.Tensor]
TensorOrTensors = mica.Tensor | Tensors
NodeList, NodeSet, Names = list[Node], set[Node], list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_node_target(submodules, node):
    """What a node calls, by its full name: of a module its class, of a method its name."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of {', '.join(sorted(CALLABLE_NODE_OPS))}, but found {node.op}")
    if node.op == "call_method":
        return node.target
    if node.op == "call_function":
        return _name_of_function(node.target)
    kind = type(submodules[node.target])
    return f"{torch_module_name(kind.__module__)}.{kind.__qualname__}"


def get_acc_ops_name(k):
    """What a function or class is called by its full name; a name stays as it is."""
    if isinstance(k, str):
        return k
    return f"{torch_module_name(k.__module__)}.{k.__name__}" if isinstance(k, type) else _name_of_function(k)


def _name_of_function(function):
    return f"_operator.{function.__name__}" if function.__module__ == "_operator" else qualified_name(function)


def is_node_output_tensor(node):
    """Whether a node's result is a tensor, and not a tuple of tensors or a number; `ShapeProp` has run before."""
    kind = node.meta.get("type")
    return kind is not None and issubclass(kind, mica.Tensor)


class FxNetAccFusionsFinder:
    """Finds the groups of an accelerator's nodes that have to stay together, since they hand each other what is no tensor.

    Between two nodes of a group no node is left out. Nodes of a group that the accelerator does not take whole are
    removed from `acc_nodes`.
    """

    def __init__(self, module, acc_nodes):
        self.module, self.acc_nodes = module, acc_nodes
        self.nodes = list(module.graph.nodes)

    def __call__(self):
        """A dict: each node that belongs to a group, and the group."""
        found = {}
        for node in list(self.acc_nodes):
            if node in found or node not in self.acc_nodes or node.op not in CALLABLE_NODE_OPS:
                continue
            if "tensor_meta" in node.meta:
                continue
            group = self._group_of(node)
            if group <= self.acc_nodes:
                found.update(dict.fromkeys(group, group))
            else:
                self.acc_nodes -= group
        return found

    def _group_of(self, node):
        """The nodes that are bound to this one."""
        group, waiting = {node}, [node]
        while waiting:
            node = waiting.pop()
            bound = [used for used in node.all_input_nodes if "tensor_meta" not in used.meta]
            if "tensor_meta" not in node.meta:
                bound += node.users
            new = {each for each in bound if each.op in CALLABLE_NODE_OPS} - group
            group |= new
            between = self._between(group)
            group |= between
            waiting += new | between
        return group

    def _between(self, group):
        """The nodes that are not in a group and both read from it and are read by it."""
        below, above = set(), set()
        for node in self.nodes:
            if any(used in group or used in below for used in node.all_input_nodes):
                below.add(node)
        for node in reversed(self.nodes):
            if any(user in group or user in above for user in node.users):
                above.add(node)
        return (below & above) - group


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
