"""Which nodes of a graph a backend takes."""

import abc

from mica.fx.node import Node
from mica.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]


class OperatorSupportBase(abc.ABC):
    """Says of each node whether it is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules, node):
        """Whether a node is supported; `submodules` are the modules of the graph by their names."""
        raise NotImplementedError


def _dtype_of(node):
    known = node.meta.get("tensor_meta")
    if known is None:
        raise AssertionError("_get_arg_dtype: expect tensor_meta in node.meta")
    return known.dtype if hasattr(known, "dtype") else known[0].dtype


class OperatorSupport(OperatorSupportBase):
    """By a dict: target -> None, or (dtypes of each argument or None, dtypes of arguments by name)."""

    def __init__(self, support_dict=None):
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules, node):
        """Whether the dict has what the node calls, for the dtypes of its arguments."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        if self._support_dict[target] is None:
            return True
        positional, named = self._support_dict[target]
        pairs = [*zip(node.args, positional, strict=False)]
        pairs += [(node.kwargs[name], dtypes) for name, dtypes in named.items() if name in node.kwargs]
        return all(
            dtypes is None or not isinstance(value, Node) or _dtype_of(value) in dtypes for value, dtypes in pairs
        )


def create_op_support(is_node_supported):
    """A support that is a function of modules and a node."""

    class ByFunction(OperatorSupportBase):
        def is_node_supported(self, submodules, node):
            return is_node_supported(submodules, node)

    return ByFunction()


def chain(*op_support):
    """What all of them support."""
    return create_op_support(lambda modules, node: all(each.is_node_supported(modules, node) for each in op_support))


def any_chain(*op_support):
    """What one of them supports."""
    return create_op_support(lambda modules, node: any(each.is_node_supported(modules, node) for each in op_support))


class OpSupports:
    """Supports that decline some nodes."""

    @classmethod
    def decline_if_input_dtype(cls, dtype):
        """Nodes without an input of this dtype."""
        return create_op_support(lambda _, node: all(_dtype_of(each) != dtype for each in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set):
        """Nodes whose names are not among these."""
        return create_op_support(lambda _, node: node.name not in disallow_set)
