"""Nested tuples, lists and dicts of values as flat lists, and back."""

from collections import OrderedDict

__all__ = ["tree_flatten", "tree_leaves", "tree_map", "tree_unflatten"]

_Leaf = object()


class TreeSpec:
    """The shape of a nest: its container's type, what the container needs to be built again, the shapes of its items."""

    def __init__(self, kind, context, children):
        self.kind, self.context, self.children = kind, context, children

    def __eq__(self, other):
        mine, theirs = ((s.kind, s.context, s.children) for s in (self, other))
        return mine == theirs

    @property
    def num_leaves(self):
        return 1 if self.kind is _Leaf else sum(child.num_leaves for child in self.children)

    def __repr__(self):
        if self.kind is _Leaf:
            return "*"
        separator = ",\n  "
        return f"TreeSpec({self.kind.__name__}, {self.context}, [{separator.join(map(repr, self.children))}])"


def _is_namedtuple(kind):
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _items(tree):
    """The container's type, its context and its items; None for a leaf."""
    kind = type(tree)
    if kind in (tuple, list) or _is_namedtuple(kind):
        return kind, None, list(tree)
    if kind in (dict, OrderedDict):
        return kind, list(tree), list(tree.values())
    return None


def tree_flatten(tree):
    """The leaves in order, and the shape of the nest."""
    found = _items(tree)
    if found is None:
        return [tree], TreeSpec(_Leaf, None, [])
    kind, context, items = found
    leaves, children = [], []
    for item in items:
        below, spec = tree_flatten(item)
        leaves += below
        children.append(spec)
    return leaves, TreeSpec(kind, context, children)


def tree_unflatten(leaves, spec):
    """The nest of a shape with these leaves."""
    remaining = iter(leaves)

    def build(spec):
        if spec.kind is _Leaf:
            return next(remaining)
        items = [build(child) for child in spec.children]
        if spec.context is not None:
            return spec.kind(zip(spec.context, items, strict=True))
        return spec.kind(*items) if _is_namedtuple(spec.kind) else spec.kind(items)

    return build(spec)


def tree_leaves(tree):
    """The leaves in order."""
    return tree_flatten(tree)[0]


def tree_map(function, tree, *others):
    """The nest with the function of each leaf, and of the leaves in the same places of other nests."""
    leaves, spec = tree_flatten(tree)
    columns = [leaves, *(spec_leaves(other, spec) for other in others)]
    return tree_unflatten([function(*row) for row in zip(*columns, strict=True)], spec)


def spec_leaves(tree, spec):
    """The leaves of a nest that must have a given shape."""
    leaves, own = tree_flatten(tree)
    if own != spec:
        raise ValueError(f"nests of different shapes: {own} and {spec}")
    return leaves


def broadcast_to_spec(tree, spec):
    """One value for each leaf of a shape: a value above a nest counts for all that is below. None if it does not fit."""
    if _items(tree) is None:
        return [tree] * spec.num_leaves
    kind, context, items = _items(tree)
    if kind is not spec.kind or context != spec.context or len(items) != len(spec.children):
        return None
    leaves = []
    for item, child in zip(items, spec.children, strict=True):
        below = broadcast_to_spec(item, child)
        if below is None:
            return None
        leaves += below
    return leaves
