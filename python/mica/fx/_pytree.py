"""Takes nests of arguments apart by a known form: the form of the arguments that a graph was traced with."""

import collections

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]


def _by_keys(tree, spec):
    return [tree[key] for key in spec.context]


def _by_position(tree, spec):
    return [tree[i] for i in range(len(spec.children()))]


SUPPORTED_NODES = {
    dict: _by_keys,
    list: _by_position,
    tuple: _by_position,
    collections.namedtuple: _by_position,
}
SUPPORTED_NODES_EXACT_MATCH = {
    dict: lambda tree, spec: list(tree.keys()) == list(spec.context),
    list: lambda tree, spec: len(tree) == len(spec.children()),
    tuple: lambda tree, spec: len(tree) == len(spec.children()),
    collections.namedtuple: lambda tree, spec: len(tree) == len(spec.children()),
}


def register_pytree_flatten_spec(cls, flatten_fn_spec, flatten_fn_exact_match_spec=None):
    """Say how instances of a class are taken apart: flatten_fn_spec(tree, spec) is the list of their parts."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def tree_flatten_spec(pytree, spec):
    """The leaves of a nest, where `spec` has leaves."""
    if spec.is_leaf():
        return [pytree]
    if spec.type not in SUPPORTED_NODES:
        from mica.utils._pytree_nodes import SUPPORTED_NODES as known

        if spec.type in known:  # it is known how its instances are taken apart, whatever the form is
            parts, context = known[spec.type].flatten_fn(pytree)
            if context == spec.context:
                return [leaf for part, inner in zip(parts, spec.children(), strict=True)
                        for leaf in tree_flatten_spec(part, inner)]  # fmt: skip
        raise RuntimeError(
            f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register one with "
            "torch.fx._pytree.register_pytree_flatten_spec.  If you have serialized your model, make sure that any custom "
            "pytrees have been registered before loading it."
        )
    parts = SUPPORTED_NODES[spec.type](pytree, spec)
    return [
        leaf for part, inner in zip(parts, spec.children(), strict=False) for leaf in tree_flatten_spec(part, inner)
    ]
