"""Joining layers of a graph with the batch normalization and the relu that follow them."""

from mica import nn
from mica.ao.quantization.fuse_modules import _METHODS, get_fuser_method
from mica.ao.quantization.fx.operations import RELU

__all__ = ["fuse"]

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def _follower(node):
    """The one node that uses a node's result, or None."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_relu(node, modules):
    target = type(modules[node.target]) if node.op == "call_module" else node.target
    return node.op in ("call_module", "call_function", "call_method") and target in RELU


def _chain(node, modules):
    """The nodes that are joined with this one, it first: with batch normalization, then relu, if they follow."""
    chain = [node]
    after = _follower(node)
    if after is not None and after.op == "call_module" and isinstance(modules[after.target], _NORMS):
        chain.append(after)
        after = _follower(after)
    if after is not None and _is_relu(after, modules):
        chain.append(after)
    return chain


def _parts(chain, modules):
    return [modules[node.target] if node.op == "call_module" else nn.ReLU() for node in chain]


def _usual_method(chain, modules):
    """The function that joins these nodes, or None."""
    kinds = [type(part) for part in _parts(chain, modules)]
    return get_fuser_method(kinds) if tuple(kinds) in _METHODS else None


def _longest_chain(node):
    """Three nodes that follow each other, or the fewer that there are, as long as nobody else uses their results."""
    chain = [node]
    while len(chain) < 3 and _follower(chain[-1]) is not None and _follower(chain[-1]).op != "output":
        chain.append(_follower(chain[-1]))
    return chain


def _method_of(rules):
    """A function of a chain of nodes and of the modules, which returns what joins them by the rules of a backend."""

    def method(chain, modules):
        return rules.fuser([type(modules[n.target]) if n.op == "call_module" else n.target for n in chain])

    return method


def _set(model, name, module):
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent) if parent else model, last, module)


def fuse(model, is_qat, rules=None):
    """Join the nodes of a GraphModule that can be one layer. The rules of a backend say which, if there are any."""
    modules = dict(model.named_modules())
    method_of = _usual_method if rules is None else _method_of(rules)
    for node in list(model.graph.nodes):
        if node.op != "call_module" or node._erased:
            continue
        chain = _chain(node, modules) if rules is None else _longest_chain(node)
        while len(chain) > 1 and method_of(chain, modules) is None:
            chain.pop()
        if len(chain) < 2:
            continue
        parts = _parts(chain, modules)
        fused = method_of(chain, modules)(is_qat, *parts)
        _set(model, node.target, fused)
        modules[node.target] = fused
        for part in fused.modules():
            part.training = parts[0].training
        chain[-1].replace_all_uses_with(node)
        for joined in reversed(chain[1:]):
            model.graph.erase_node(joined)
    model.delete_all_unused_submodules()
    model.recompile()
    return model
