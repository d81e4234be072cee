"""How many bytes the values of a graph take, and other targets for its calls."""

import typing

from mica.fx.node import map_arg
from mica.fx.passes.shape_prop import ShapeProp

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


def replace_target_nodes_with(fx_module, old_op, old_target, new_op, new_target):
    """Let the nodes that call `old_target` by `old_op` call `new_target` by `new_op`.

    The module's code is written anew by `fx_module.recompile()`.
    """
    graph = type(fx_module.graph)()
    values = {}
    for node in fx_module.graph.nodes:
        if node.op != old_op or node.target != old_target:
            values[node] = graph.node_copy(node, values.__getitem__)
            continue
        args, kwargs = (map_arg(each, values.__getitem__) for each in (node.args, node.kwargs))
        values[node] = graph.create_node(new_op, new_target, args, kwargs, node.name)
    fx_module.graph = graph


class size_bytes(typing.NamedTuple):
    """The bytes of a node's result, and these with the parameters and buffers of the module that it calls."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module, args=None):
    """Note the bytes of each node but the output in `node.size_bytes`; with `args` the graph is run first.

    Without them, `ShapeProp` has to have run.
    """
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node):
    """What `ShapeProp` found out about a node's result; RuntimeError if it has not run."""
    found = node.meta.get("tensor_meta")
    if not found:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run."
        )
    return found


def get_size_of_node(fx_module, node):
    """The `size_bytes` of one node."""
    total = 0
    if node.op == "call_module":
        module = fx_module.get_submodule(node.target)
        total += sum(each.nbytes for each in module.parameters()) + sum(each.nbytes for each in module.buffers())
    described = get_tensor_meta(node)
    output = described.shape.numel() * described.dtype.itemsize
    return size_bytes(output, total + output)
