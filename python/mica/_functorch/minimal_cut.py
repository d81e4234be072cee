"""Which values of a forward pass are kept for the backward pass, where cheap ones may be computed again.

A cut between the inputs and the gradients: each value is an edge, as wide as its bytes, and what is computed again lies
behind the cut. Of all cuts the narrowest is taken, by Dinic's algorithm.
"""

import collections
import itertools
import math
import operator

import mica
from mica import _C

__all__ = ["values_to_keep"]

# Operators that read each number and write one, look at numbers elsewhere, or sum them.
_CHEAP = frozenset([
    "add", "sub", "div", "atan2", "mul", "max", "min", "pow", "remainder", "fmod", "bitwise_and", "bitwise_or",
    "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "eq", "ne", "ge", "gt", "le", "lt",
    "abs", "ceil", "floor", "frac", "neg", "relu", "round", "silu", "trunc", "log", "log10", "log1p", "log2",
    "lgamma", "exp", "exp2", "expm1", "erf", "erfc", "erfinv", "cos", "acos", "cosh", "acosh", "sin", "asin", "sinh",
    "asinh", "tan", "atan", "tanh", "atanh", "sqrt", "rsqrt", "reciprocal", "sigmoid", "softplus", "threshold",
    "threshold_backward", "clamp", "clamp_min", "clamp_max", "where", "lerp", "addcmul", "addcdiv", "gelu",
    "gelu_backward", "sum", "mean", "sum_to_size", "amax", "amin", "squeeze", "unsqueeze", "alias", "detach", "view",
    "slice", "t", "transpose", "permute", "expand", "as_strided", "select", "split", "split_with_sizes", "unbind",
    "diagonal", "clone", "_to_copy", "full_like", "var", "std", "_unsafe_view", "reshape", "scalar_tensor", "ones",
    "new_zeros", "lift_fresh_copy", "arange", "triu", "tril", "var_mean", "isinf", "isnan", "any", "all", "full",
    "zeros", "empty", "empty_like", "argmax", "argmin", "maximum", "minimum", "zeros_like", "ones_like", "index",
    "gather", "logical_and", "logical_or", "logical_not", "logical_xor", "masked_fill", "rsub", "sign", "sgn",
    "square", "leaky_relu", "hardtanh", "hardswish", "hardsigmoid", "elu", "copy", "fill",
])  # fmt: skip
_WIDENING_BY_DISTANCE, _FARTHEST = 1.1, 100
_REDUCES = 4  # a result that is so many times smaller than what it is made of is kept


def _name(node):
    packet = getattr(node.target, "_overloadpacket", None)
    return getattr(packet, "__name__", "")


def _is_cheap(node):
    if node.op != "call_function":
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        return False
    return node.target is operator.getitem or (
        getattr(node.target, "namespace", "") == "aten" and _name(node) in _CHEAP
    )


def _bytes(node):
    value = node.meta.get("val")
    return value.numel() * value.element_size() if isinstance(value, _C.TensorBase) else 0


def values_to_keep(nodes, late, wanted, results):
    """The nodes that a backward pass is given.

    Args:
        nodes: those of the joint graph, in its order
        late: those that gradients of the outputs are needed for
        wanted: those that the gradients of the inputs are computed of
        results: these gradients
    """
    order = {node: i for i, node in enumerate(nodes)}
    early = [node for node in nodes if node not in late and node.op != "output"]
    needed = _needed_by(early, late, wanted, results)
    distance = {}
    for node in reversed(nodes):
        steps = [0 if user in late else distance.get(user, math.inf) + 1 for user in node.users if user.op != "output"]
        distance[node] = min(steps, default=math.inf)
    flow = _Flow()
    for node in early:
        if node not in needed:
            continue
        is_used = _is_used(node, late, wanted, results)
        if node.op == "placeholder" or not _may_be_computed_again(node, late, wanted):
            flow.edge("source", (node, 0), math.inf)
        flow.edge((node, 0), (node, 1), _width(node, distance[node]))
        if is_used:
            flow.edge((node, 1), "sink", math.inf)
        for user in node.users:
            if user in needed and user not in late:
                flow.edge((node, 1), (user, 0), math.inf)
    near = flow.side_of("source", "sink")
    kept = [node for node in early if (node, 0) in near and (node, 1) not in near and node in needed]
    return sorted(kept, key=order.__getitem__)


def _needed_by(early, late, wanted, results):
    """The early nodes that the wanted late ones are computed of."""
    needed = set()
    stack = [node for node in early if _is_used(node, late, wanted, results)]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += node.all_input_nodes
    return needed


def _is_used(node, late, wanted, results):
    """Whether the backward pass reads an early node, or returns it."""
    return node in results or any(user in late and user in wanted for user in node.users)


def _may_be_computed_again(node, late, wanted):
    if node.op == "get_attr":
        return True
    if not _is_cheap(node):
        return False
    if node.target is operator.getitem:
        return True
    given = sum(_bytes(each) for each in node.all_input_nodes)
    if isinstance(node.meta.get("val"), _C.TensorBase) and _bytes(node) * _REDUCES < given:
        return False
    # What the backward pass has to write into memory by itself is no cheaper there.
    return getattr(node.target, "is_view", False) or not any(
        user in late and user in wanted and not (_is_cheap(user) or _name(user) == "cat") for user in node.users
    )


def _width(node, distance):
    value = node.meta.get("val")
    if node.op == "get_attr":
        return 0
    if not isinstance(value, (_C.TensorBase, int, mica.SymInt)):
        return math.inf
    width = max(_bytes(node), 8) * _WIDENING_BY_DISTANCE ** max(min(distance, _FARTHEST), 1)
    is_written = node.op == "placeholder" or not all(_is_cheap(user) for user in node.users)
    return width if is_written else width * 2


class _Flow:
    """A network of pipes."""

    def __init__(self):
        self.room = collections.defaultdict(dict)

    def edge(self, begin, end, width):
        self.room[begin][end] = self.room[begin].get(end, 0) + width
        self.room[end].setdefault(begin, 0)

    def side_of(self, source, sink):
        """What is reached from the source behind a flow that is as large as can be."""
        while (levels := self._levels(source, sink)) is not None:
            followers = {each: iter(list(self.room[each])) for each in levels}
            while self._send(source, sink, levels, followers):
                pass
        return set(self._reached(source))

    def _reached(self, source):
        levels, queue = {source: 0}, collections.deque([source])
        while queue:
            begin = queue.popleft()
            for end, room in self.room[begin].items():
                if room > 0 and end not in levels:
                    levels[end] = levels[begin] + 1
                    queue.append(end)
        return levels

    def _levels(self, source, sink):
        levels = self._reached(source)
        return levels if sink in levels else None

    def _send(self, source, sink, levels, followers):
        path = [source]
        while path[-1] != sink:
            begin = path[-1]
            for end in followers[begin]:
                if self.room[begin][end] > 0 and levels.get(end) == levels[begin] + 1:
                    path.append(end)
                    break
            else:
                path.pop()
                if not path:
                    return False
        edges = list(itertools.pairwise(path))
        amount = min(self.room[begin][end] for begin, end in edges)
        if amount == math.inf:
            raise RuntimeError("the backward pass needs a value that can neither be kept nor computed again")
        for begin, end in edges:
            self.room[begin][end] -= amount
            self.room[end][begin] += amount
        # Pipes before the narrowest one have room left, and are tried again.
        followers.update((begin, iter(list(self.room[begin]))) for begin, _ in edges)
        return True
