"""Replacing parts of a graph that look like a pattern."""

import collections

from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule, _copy_attr
from mica.fx.node import Node

__all__ = ["Match", "replace_pattern"]

Match = collections.namedtuple("Match", ["anchor", "nodes_map"])


def _graph_of(pattern):
    from mica.fx._symbolic_trace import symbolic_trace

    if isinstance(pattern, GraphModule):
        return pattern.graph
    return pattern if isinstance(pattern, Graph) else symbolic_trace(pattern).graph


def _matches(pattern, node, found):
    """Whether a node is what a node of the pattern says; notes which node stands for which."""
    if pattern in found:
        return found[pattern] is node
    if pattern.op == "placeholder":
        found[pattern] = node
        return True
    if not isinstance(node, Node) or pattern.op != node.op or pattern.target != node.target:
        return False
    found[pattern] = node
    return _same(pattern.args, node.args, found) and _same(pattern.kwargs, node.kwargs, found)


def _same(wanted, given, found):
    if isinstance(wanted, Node):
        return _matches(wanted, given, found)
    if isinstance(wanted, (tuple, list)):
        return isinstance(given, (tuple, list)) and len(wanted) == len(given) and all(
            _same(a, b, found) for a, b in zip(wanted, given, strict=True))  # fmt: skip
    if isinstance(wanted, dict):
        return (
            isinstance(given, dict)
            and wanted.keys() == given.keys()
            and all(_same(wanted[k], given[k], found) for k in wanted)
        )
    return wanted == given


def replace_pattern(gm, pattern, replacement):
    """Replace every part of a graph that looks like `pattern` by `replacement`; returns what was matched.

    Both are functions or modules; a part whose inner values are used elsewhere is left.
    """
    wanted, new = _graph_of(pattern), _graph_of(replacement)
    anchor = wanted.output_node().args[0]
    if not isinstance(anchor, Node):
        raise NotImplementedError("replace_pattern: the pattern must have one result")
    inputs = [node for node in wanted.nodes if node.op == "placeholder"]
    matches, taken = [], set()
    for node in list(gm.graph.nodes):
        found = {}
        if not _matches(anchor, node, found):
            continue
        inner = {value for key, value in found.items() if key.op not in ("placeholder",)}
        used_elsewhere = any(user not in inner for value in inner if value is not node for user in value.users)
        if used_elsewhere or inner & taken:
            continue
        taken |= inner
        matches.append(Match(node, found))
    for match in matches:
        values = {}
        new_inputs = [node for node in new.nodes if node.op == "placeholder"]
        for old, fresh in zip(inputs, new_inputs, strict=True):
            values[fresh] = match.nodes_map[old]
        with gm.graph.inserting_before(match.anchor):
            result = gm.graph.graph_copy(new, values)
        match.anchor.replace_all_uses_with(result)
        for old in sorted(
            {v for k, v in match.nodes_map.items() if k.op != "placeholder"}, key=Node._position, reverse=True
        ):
            if not old.users:
                gm.graph.erase_node(old)
    if isinstance(replacement, GraphModule):
        for node in new.nodes:
            if node.op in ("get_attr", "call_module"):
                _copy_attr(replacement, gm, node.target)
    gm.recompile()
    return matches
