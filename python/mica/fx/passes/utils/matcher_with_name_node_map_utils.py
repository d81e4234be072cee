"""Finding parts of a graph that look like a pattern, of which some nodes have names."""

from mica.fx._pytree_codegen import _PyTreeInfo
from mica.fx.passes.utils.matcher_utils import SubgraphMatcher
from mica.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm):
    """The module without the dict that its graph returns last, and that dict: nodes of the graph by the names it gives them."""
    node = gm.graph.output_node()
    returned = node.args[0]
    spec = getattr(gm, "_out_spec", None)  # of exported programs, and of graphs whose inputs are nests
    if spec is not None:
        returned = tree_unflatten(list(returned), spec)
    if not isinstance(returned, tuple):
        raise AssertionError("Expecting the pattern graph to return a tuple")
    if len(returned) < 2:
        raise AssertionError("Expecting the pattern graph to have at least two outputs")
    *kept, names = returned
    if not isinstance(names, dict):
        raise AssertionError("Expecting the input graph to have a dict output as the last element")
    leaves, kept_spec = tree_flatten(kept)
    node.args = (leaves,)
    info = getattr(gm.graph._codegen, "pytree_info", None)
    if info is not None:
        gm.graph._codegen.pytree_info = _PyTreeInfo(info.orig_args, info.in_spec, kept_spec)
    elif spec is not None:
        gm._out_spec = kept_spec
    gm.recompile()
    return gm, dict(names)


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """Finds a pattern whose function returns a dict last: `return relu, {"conv": conv, "relu": relu}`.

    `name_node_map` of a match has the nodes of the graph by these names. The pattern is a `GraphModule`, of which the
    dict is taken away.
    """

    def __init__(
        self,
        pattern_gm,
        match_output=False,
        match_placeholder=False,
        remove_overlapping_matches=True,
        ignore_literals=False,
    ):
        pattern_gm, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        super().__init__(pattern_gm.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph, node_name_match=""):
        """The matches in a graph, each with its `name_node_map`."""
        matches = super().match(graph, node_name_match)
        for each in matches:
            each.name_node_map = {name: each.nodes_map[node] for name, node in self.name_node_map.items()}
        return matches
