"""Computes values once that a graph computes twice."""

import operator

import mica
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.node import Node, map_aggregate
from mica.fx.passes.infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]

_RANDOM = (
    "rand",
    "dropout",
    "bernoulli",
    "normal",
    "uniform",
    "multinomial",
    "exponential",
    "poisson",
    "geometric",
    "cauchy",
    "empty",
)


def get_CSE_banned_ops():
    """Operators each call of which counts: those that draw, and those that leave memory as it is found."""
    aten = mica.ops.aten
    names = ("dropout", "_fused_dropout", "_standard_gamma", "bernoulli", "multinomial", "native_dropout", "normal",
             "poisson", "binomial", "rrelu", "rand_like", "rand", "randint", "randn", "randperm", "empty")  # fmt: skip
    return {packet for name in names if (packet := getattr(aten, name, None)) is not None}


def _counts(target, banned):
    packet = getattr(target, "_overloadpacket", target)
    schema = getattr(target, "_schema", None)
    name = getattr(packet, "__name__", "")
    if packet in banned or target in banned or (schema is not None and schema.is_mutable):
        return True
    return (
        schema is None
        and target is not operator.getitem
        and (name.endswith("_") or any(part in name for part in _RANDOM))
    )


class CSEPass(PassBase):
    """Common subexpressions of a graph of operators; inputs, attributes and what draws numbers are left."""

    def __init__(self, banned_ops=None):
        self.banned_ops = set() if banned_ops is None else set(banned_ops)

    def call(self, graph_module):
        banned, known, modified = self.banned_ops | get_CSE_banned_ops(), {}, False
        changes = [node.target for node in graph_module.graph.nodes if node.op == "call_function"]
        if any(getattr(getattr(t, "_schema", None), "is_mutable", False) for t in changes):
            return PassResult(graph_module, False)  # a value that is read twice may have changed in between
        graph, copies = Graph(), {}  # the module that came stays as it is
        for node in graph_module.graph.nodes:
            new = copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op != "call_function" or _counts(node.target, banned):
                continue
            key = (new.target, _key(new.args), _key(tuple(sorted(new.kwargs.items()))))
            if key in known:
                copies[node] = known[key]
                graph.erase_node(new)
                modified = True
            else:
                known[key] = new
        return PassResult(GraphModule(graph_module, graph), modified)


def _key(value):
    def leaf(each):
        return ("node", id(each)) if isinstance(each, Node) else (type(each).__name__, repr(each))

    return repr(map_aggregate(value, leaf))
