"""Modules among the inputs of a program: their parameters and buffers are inputs, and another module may be given later."""

import contextlib
import copy
import weakref

from mica.fx._pytree import register_pytree_flatten_spec
from mica.nn import Module
from mica.utils._pytree_nodes import (
    _NODE_REGISTRY_LOCK,
    SUPPORTED_NODES,
    _deregister_pytree_node,
    _private_register_pytree_node,
)

__all__ = ["modules_as_nests", "named_state"]


class _Context:
    """The names of a module's tensors, and the module, whose class is compared."""

    def __init__(self, names, module):
        self.names, self.kind, self.module = names, type(module), weakref.ref(module)

    def __eq__(self, other):
        return isinstance(other, _Context) and (self.names, self.kind) == (other.names, other.kind)

    __hash__ = None


def named_state(module):
    """The parameters and buffers of a module by their paths, each once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _flatten(module):
    state = named_state(module)
    return list(state.values()), _Context(list(state), module)


def _unflatten(values, context):
    module, values = context.module(), list(values)
    if module is None:
        raise RuntimeError("a module that a program was exported with as an input is not there any more")
    state = named_state(module)
    if all(new is old for new, old in zip(values, state.values(), strict=True)):
        return module
    new = {id(state[name]): value for name, value in zip(context.names, values, strict=True)}
    return _with_tensors(module, new, {})


def _with_tensors(module, new, made):
    """A copy of a module with other tensors in the places of its own; {id of a tensor: the other one}."""
    if id(module) in made:
        return made[id(module)]
    result = made[id(module)] = copy.copy(module)
    result.__dict__ = {key: copy.copy(value) if type(value) is dict else value for key, value in vars(module).items()}
    for tensors in (result._parameters, result._buffers):
        for name, value in tensors.items():
            tensors[name] = new.get(id(value), value)
    for name, child in module._modules.items():
        result._modules[name] = child and _with_tensors(child, new, made)
    return result


def _by_spec(module, spec):
    state = named_state(module)
    return [state[name] for name in spec.context.names]


def _kinds_in(value):
    """The classes of modules within a nest of arguments."""
    from mica.utils._pytree import tree_leaves

    return {type(leaf) for leaf in tree_leaves(value) if isinstance(leaf, Module)}


@contextlib.contextmanager
def modules_as_nests(value):
    """A block in which the modules within a nest are nests of their tensors."""
    added = []
    try:
        with _NODE_REGISTRY_LOCK:
            for kind in _kinds_in(value) - SUPPORTED_NODES.keys():
                _private_register_pytree_node(kind, _flatten, _unflatten)
                register_pytree_flatten_spec(kind, _by_spec)
                added.append(kind)
        yield
    finally:
        for kind in added:
            _deregister_pytree_node(kind)
