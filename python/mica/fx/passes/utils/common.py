"""Modules around parts of a graph, and graphs that compute the same."""

from mica.fx.graph_module import GraphModule, _copy_attr
from mica.fx.passes.utils.matcher_utils import SubgraphMatcher
from mica.nn import Module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module without a forward, which holds the modules of a dict by their names."""

    def __init__(self, d):
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(gm, subgraph, comp_name="", class_name="GraphModule"):
    """A graph module for nodes that were copied out of `gm`, with those attributes of `gm` that they use.

    The second result says where each attribute would be if the module were the child `comp_name` of another.
    """
    holder, places = Module(), {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        if not isinstance(node.target, str):
            raise AssertionError(f"Expected str target, got {type(node.target)}")
        _copy_attr(gm, holder, node.target)
        places[node.target] = f"{comp_name}.{node.target}"
    return GraphModule(holder, subgraph, class_name), places


def compare_graphs(left, right):
    """Whether two graphs have as many inputs and the same nodes with the same connections, up to their results.

    The names of nodes do not count, nor does the order of the inputs.
    """
    matcher = SubgraphMatcher(left, match_output=True, match_placeholder=True)
    return len(matcher.match(right)) > 0
