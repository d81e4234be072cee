"""Replacing parts of a graph that look like a pattern."""

import collections
import dataclasses

from mica.fx.graph import Graph, _has
from mica.fx.graph_module import GraphModule, _copy_attr
from mica.fx.node import Node
from mica.fx.passes.utils.matcher_utils import SubgraphMatcher

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Match = collections.namedtuple("Match", ["anchor", "nodes_map"])


@dataclasses.dataclass
class ReplacedPatterns:
    """A match, and the nodes that stand in its place."""

    anchor: Node
    nodes_map: dict
    replacements: list


def _graph_of(pattern):
    from mica.fx._symbolic_trace import symbolic_trace

    if isinstance(pattern, GraphModule):
        return pattern.graph
    return pattern if isinstance(pattern, Graph) else symbolic_trace(pattern).graph


def replace_pattern(gm, pattern, replacement):
    """Replace every part of a graph that looks like `pattern` by `replacement`; returns what was matched.

    Both are functions or modules; a part whose inner values are used elsewhere is left.
    """
    return [Match(each.anchor, each.nodes_map) for each in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(gm, pattern, replacement=None, match_filters=None, ignore_literals=False,
                                 replacement_callback=None, node_name_match=""):  # fmt: skip
    """The same for the matches that every filter(match, graph, pattern's graph) accepts.

    `replacement_callback`, called like a filter, returns the graph that replaces one match.
    """
    if replacement is None and replacement_callback is None:
        raise AssertionError("Must provide either replacement or replacement_callback")
    wanted = _graph_of(pattern)
    fixed = None if replacement is None else _graph_of(replacement)
    matches = SubgraphMatcher(wanted, ignore_literals=ignore_literals).match(gm.graph, node_name_match)
    matches = [m for m in matches if all(keep(m, gm.graph, wanted) for keep in match_filters or ())]
    now, made = {}, []  # the nodes that earlier replacements have put in the place of others
    for match in matches:
        new = fixed if replacement_callback is None else replacement_callback(match, gm.graph, wanted)
        made.append(_replaced(gm, match, new, now))
    if hasattr(replacement, "named_modules"):
        gm.delete_all_unused_submodules()  # removes the pattern's modules, whose names the replacement's may take
        for node in fixed.nodes:
            if node.op in ("get_attr", "call_module") and not _has(gm, node.target):
                _copy_attr(replacement, gm, node.target)
    gm.recompile()
    return made


def _replaced(gm, match, new, now):
    """Put a graph in the place of one match."""
    inputs = [now.get(node, node) for node in match.placeholder_nodes]
    fresh = [node for node in new.nodes if node.op == "placeholder"]
    if len(fresh) != len(inputs):
        raise AssertionError(f"the replacement takes {len(fresh)} values, and the pattern {len(inputs)}")
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    inside = {node for wanted, node in match.nodes_map.items() if wanted.op not in ("placeholder", "output")}
    users = [user for node in match.returning_nodes for user in node.users if user not in inside]
    last_input = max((order[node] for node in inputs if isinstance(node, Node)), default=-1)
    first_user = min(users, key=order.__getitem__, default=None)
    point = first_user
    if first_user is None or order[first_user] <= last_input:
        point = max(inside, key=order.__getitem__)
    before = set(gm.graph.nodes)
    with gm.graph.inserting_before(point):
        result = gm.graph.graph_copy(new, dict(zip(fresh, inputs, strict=True)))
    added = [node for node in gm.graph.nodes if node not in before]
    results = result if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(match.returning_nodes):
        raise AssertionError(
            f"the replacement returns {len(results)} values, and the pattern {len(match.returning_nodes)}"
        )
    for old, value in zip(match.returning_nodes, results, strict=True):
        if old is not value:
            old.replace_all_uses_with(value)
            now[old] = value
    for old in sorted(inside, key=order.__getitem__, reverse=True):
        if not old.users:
            gm.graph.erase_node(old)
    return ReplacedPatterns(match.anchors[0], match.nodes_map, added)
