"""Types of the items of tuples and lists in a graph."""

import operator
import typing

__all__ = ["annotate_getitem_nodes"]


def _type_of_item(container, index):
    """The type of one item of a container of this type; None if the type does not say."""
    origin, arguments = typing.get_origin(container), typing.get_args(container)
    if origin is list:
        return arguments[0]
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return arguments[0]
        kinds = arguments
    elif isinstance(container, type) and issubclass(container, tuple) and hasattr(container, "_fields"):
        kinds = [container.__annotations__.get(name) for name in container._fields]
    else:
        return None
    if index >= len(kinds):
        raise AssertionError(f"Index {index} out of range for parameterized_types (len={len(kinds)})")
    return kinds[index]


def annotate_getitem_nodes(graph):
    """Set `node.type` of the nodes that take an item of a value whose node has the type of a tuple, list or NamedTuple."""
    for node in graph.nodes:
        if node.target is operator.getitem and node.op == "call_function":
            container = node.args[0].type
            found = None if container is None else _type_of_item(container, node.args[1])
            if found is not None:
                node.type = found
