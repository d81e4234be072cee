"""Leaves of nests with the paths to them."""

from mica.utils._pytree import _definition, _get_node_type, tree_is_leaf, tree_structure


def _generate_key_paths(key_path, tree, is_leaf=None):
    if tree_is_leaf(tree, is_leaf):
        yield key_path, tree
        return
    kind = _get_node_type(tree)
    with_keys = _definition(kind).flatten_with_keys_fn
    if with_keys is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {kind}. "
            "Please pass a flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, item in with_keys(tree)[0]:
        yield from _generate_key_paths((*key_path, key), item, is_leaf)


def tree_flatten_with_path(tree, is_leaf=None):
    """The leaves, each with the path to it, and the shape of the nest."""
    return list(_generate_key_paths((), tree, is_leaf)), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree, is_leaf=None):
    """The leaves, each with the path to it."""
    return list(_generate_key_paths((), tree, is_leaf))


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """tree_map of a function whose first argument is the path to the leaf."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [*zip(*found, strict=True), *(spec.flatten_up_to(rest) for rest in rests)]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def keystr(kp):
    """A path as text: ['a'][0].b"""
    return "".join(map(str, kp))


def key_get(obj, kp):
    """The value that a nest has at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj
