"""Finding parts of a graph that look like a pattern."""

import dataclasses

from mica.fx.node import Node
from mica.fx.passes.utils.fuser_utils import validate_partition

__all__ = ["InternalMatch", "SubgraphMatcher"]


_AROUND = ("placeholder", "output")  # nodes that stand for values outside


@dataclasses.dataclass
class InternalMatch:
    """One match: which node of the graph stands for which of the pattern."""

    anchors: list
    nodes_map: dict = dataclasses.field(default_factory=dict)
    placeholder_nodes: list = dataclasses.field(default_factory=list)
    returning_nodes: list = dataclasses.field(default_factory=list)
    name_node_map: dict = dataclasses.field(default_factory=dict)


class SubgraphMatcher:
    """Finds a pattern in graphs. A part whose inner values are used outside of it does not match."""

    def __init__(
        self,
        pattern,
        match_output=False,
        match_placeholder=False,
        remove_overlapping_matches=True,
        ignore_literals=False,
    ):
        self.pattern, self.match_placeholder, self.ignore_literals = pattern, match_placeholder, ignore_literals
        self.match_output = match_output
        self.remove_overlapping_matches = remove_overlapping_matches
        output = pattern.output_node()
        self.pattern_returning_nodes = output.all_input_nodes
        self.pattern_placeholder_nodes = [node for node in pattern.nodes if node.op == "placeholder"]
        # All other nodes are reached from these.
        self.pattern_anchors = [node for node in self.pattern_returning_nodes if len(node.users) == 1] or list(
            self.pattern_returning_nodes
        )
        if match_output:  # the pattern ends where the graph ends
            self.pattern_anchors = [output]
        if not any(node.op not in ("placeholder", "output") for node in pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an pattern with dead code")

    def _equal(self, wanted, given):
        """Whether two nodes do the same, apart from their arguments."""
        if not isinstance(given, Node) or wanted.op != given.op:
            return False
        if wanted.op == "call_module":
            ours, theirs = (node.graph.owning_module for node in (wanted, given))
            if ours is not None and theirs is not None:
                return type(ours.get_submodule(wanted.target)) is type(theirs.get_submodule(given.target))
        return wanted.op == "placeholder" or wanted.target == given.target or wanted.op == "get_attr"

    def _literals(self, a, b):
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return len(a) == len(b)
        return self.ignore_literals or (type(a) is type(b) and a == b)

    def _nodes(self, wanted, given, found):
        if wanted in found:
            return found[wanted] is given
        if wanted.op == "placeholder" and not self.match_placeholder:
            found[wanted] = given
            return True
        if given in found.values() or not self._equal(wanted, given):
            return False
        found[wanted] = given
        ours, theirs = _arguments(wanted, given)
        return len(ours) == len(theirs) and all(self._values(a, b, found) for a, b in zip(ours, theirs, strict=True))

    def _values(self, a, b, found):
        if isinstance(a, Node):
            return self._nodes(a, b, found)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return len(a) == len(b) and all(self._values(x, y, found) for x, y in zip(a, b, strict=True))
        return not isinstance(b, Node) and self._literals(a, b)

    def _is_contained(self, found):
        """Whether what is inside of a match is used inside alone."""
        inside = {node for wanted, node in found.items() if wanted.op != "placeholder"}
        for wanted, node in found.items():
            if wanted.op in ("placeholder", "get_attr", "output"):
                continue
            if wanted in self.pattern_returning_nodes and not self.match_output:
                continue
            if any(user not in inside for user in node.users):
                return False
        return validate_partition([node for wanted, node in found.items() if wanted.op not in _AROUND])

    def _extended(self, anchors, nodes, found):
        if not anchors:
            if self._is_contained(found):
                yield found
            return
        for node in nodes:
            tried = dict(found)
            if self._nodes(anchors[0], node, tried):
                yield from self._extended(anchors[1:], nodes, tried)

    def match(self, graph, node_name_match=""):
        """The matches in a graph, none of which overlap unless that was asked for."""
        nodes, matches, taken = list(graph.nodes), [], set()
        for node in nodes:
            if node_name_match and node_name_match not in node.name:
                continue
            start = {}
            if not self._nodes(self.pattern_anchors[0], node, start):
                continue
            for found in self._extended(self.pattern_anchors[1:], nodes, start):
                inside = {each for wanted, each in found.items() if wanted.op not in _AROUND}
                if self.remove_overlapping_matches and inside & taken:
                    continue
                taken |= inside
                matches.append(InternalMatch(
                    [found[anchor] for anchor in self.pattern_anchors], found,
                    [found[n] for n in self.pattern_placeholder_nodes if n in found],
                    [found[n] for n in self.pattern_returning_nodes], {n.name: found[n] for n in found},
                ))  # fmt: skip
                if self.remove_overlapping_matches:
                    break
        return matches


def _arguments(wanted, given):
    """The arguments of two calls of the same thing, in one order."""
    schema = getattr(wanted.target, "_schema", None)
    alike = wanted.kwargs.keys() == given.kwargs.keys()
    if alike and (schema is None or len(wanted.args) == len(given.args)):
        return [[*n.args, *(n.kwargs[key] for key in sorted(n.kwargs))] for n in (wanted, given)]
    if schema is None:
        return [0], []
    names = [a.name for a in schema.arguments]
    sides = []
    for node in (wanted, given):
        values = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        values |= dict(zip(names, node.args, strict=False)) | node.kwargs
        sides.append([values.get(name) for name in names])
    return sides
