"""Finding the largest parts of a graph that a backend takes."""

import itertools

from mica.fx.passes.tools_common import get_node_target
from mica.fx.passes.utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """Nodes that go together: a dict of them."""

    def __init__(self, id=None, nodes=None):
        self.id, self.nodes = id, dict.fromkeys(nodes or ())

    def __repr__(self):
        return str(self.nodes)

    def add_node(self, node):
        self.nodes[node] = None

    def remove_node(self, node):
        self.nodes.pop(node, None)

    def size(self):
        return len(self.nodes)


class _Reach:
    """Which nodes follow others, as bits of numbers, where nodes of one partition count as one node."""

    def __init__(self, nodes):
        self.bit = {node: 1 << i for i, node in enumerate(nodes)}
        self._below = {}
        for node in reversed(nodes):
            self._below[node] = self._of(node.users)

    def _of(self, nodes):
        found = 0
        for node in nodes:
            found |= self.bit[node] | self._below.get(node, 0)
        return found

    def comes_back(self, inside, others):
        """Whether a value that leaves these nodes comes back to them, by other partitions too."""
        own = sum(self.bit[node] for node in inside)
        reached = self._of({user for node in inside for user in node.users if user not in inside})
        left = [(sum(self.bit[n] for n in nodes), nodes) for nodes in others]
        grew = True
        while grew and not reached & own:
            grew = False
            for i, (bits, nodes) in enumerate(left):
                if bits & reached:
                    reached |= self._of({user for node in nodes for user in node.users})
                    del left[i]
                    grew = True
                    break
        return bool(reached & own)


class CapabilityBasedPartitioner:
    """Partitions of the nodes that are supported. A partition never depends on itself by a way outside.

    Args:
        operator_support: an OperatorSupportBase
        allows_single_node_partition: whether a partition may have one node that computes, `non_compute_ops` apart
        skip_horizontal_fusion: put only nodes together that follow one another
    """

    def __init__(
        self, graph_module, operator_support, allows_single_node_partition=False, non_compute_ops=None,
        allowed_single_node_partition_ops=None, skip_horizontal_fusion=False,
    ):  # fmt: skip
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def _is_node_supported(self, node):
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self):
        """The partitions, from the last node of the graph to the first."""
        nodes = list(self.graph_module.graph.nodes)
        reach, found, order, home = _Reach(nodes), {}, {}, {}
        modules, ids = dict(self.graph_module.named_modules()), itertools.count()
        for node in reversed(nodes):
            if not self.operator_support.is_node_supported(modules, node):
                continue
            current = next(ids)
            found[current], order[current], home[node] = {node: None}, current, current
            candidates = sorted((each for each in found if each != current), key=order.get)
            if self.skip_horizontal_fusion:
                candidates = list(dict.fromkeys(home[user] for user in node.users if user in home))
            for other in candidates:
                together = found[current] | found[other]
                if reach.comes_back(together, [each for i, each in found.items() if i not in (current, other)]):
                    continue
                kept, gone = (current, other) if len(found[current]) >= len(found[other]) else (other, current)
                found[kept] |= found.pop(gone)
                order[kept] = min(order[kept], order.pop(gone))
                home |= dict.fromkeys(found[kept], kept)
                current = kept
        self._put_items_with_their_tuples(nodes, found, home)
        position = {node: i for i, node in enumerate(nodes)}
        partitions = [Partition(i, sorted(each, key=position.get)) for i, each in found.items() if each]
        return [each for each in partitions if self.allows_single_node_partition or self._computes(each)]

    def _put_items_with_their_tuples(self, nodes, found, home):
        """What is taken out of a tuple belongs where the tuple is made."""
        changed = True
        while changed:
            changed = False
            for node in nodes:
                is_tuple = all(
                    user.op == "call_function" and getattr(user.target, "__name__", "") == "getitem"
                    for user in node.users
                )
                for user in node.users if is_tuple else ():
                    if home.get(user) == home.get(node):
                        continue
                    changed = True
                    if user in home:
                        found[home.pop(user)].pop(user)
                    if node in home:
                        home[user] = home[node]
                        found[home[node]][user] = None

    def _computes(self, partition):
        """Whether more than one node of a partition computes."""
        idle = {"torch.ops.aten.view", "_operator.getitem", *self.non_compute_ops}
        count = 0
        for node in partition.nodes:
            if node.op == "call_function":
                name = get_node_target({}, node)
                count += (name not in idle) + (name in self.allowed_single_node_partition_ops)
        return count > 1

    def fuse_partitions(self, partitions, prefix="fused_"):
        """Put each partition into a module of its own; returns the graph module."""
        return fuse_by_partitions(self.graph_module, [each.nodes for each in partitions], prefix=prefix)

    def partition_and_fuse(self, prefix="fused_"):
        """Find the partitions, and put each into a module of its own."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions):
        """Take nodes that do not compute out of partitions where only such nodes stand before or after them."""
        idle = set(self.non_compute_ops)

        def computes(node):
            return node.op != "call_function" or get_node_target({}, node) not in idle

        for partition in partitions:
            for neighbours in (lambda node: node.all_input_nodes, lambda node: node.users):
                inner = set(partition.nodes)
                clear = {}

                def is_clear(node, inner=inner, clear=clear, neighbours=neighbours):
                    if node.op == "placeholder" or node not in inner:
                        return True
                    if node not in clear:
                        clear[node] = False
                        clear[node] = not computes(node) and all(is_clear(each) for each in neighbours(node))
                    return clear[node]

                for node in [each for each in partition.nodes if is_clear(each)]:
                    partition.remove_node(node)
