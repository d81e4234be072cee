"""Nested tuples, lists, dicts and registered containers of values as flat lists, and back."""

from collections.abc import Callable
from typing import Any

from mica._C import Size as _Size
from mica.utils import _pytree_nodes as _nodes
from mica.utils._pytree_nodes import *  # noqa: F403
from mica.utils._pytree_nodes import (  # noqa: F401 - private names that programs use
    _NODE_REGISTRY_LOCK,
    SUPPORTED_NODES,
    _defaultdict_flatten,
    _defaultdict_flatten_with_keys,
    _defaultdict_unflatten,
    _deque_flatten,
    _deque_flatten_with_keys,
    _deque_unflatten,
    _deregister_pytree_node,
    _dict_flatten,
    _dict_flatten_with_keys,
    _dict_unflatten,
    _list_flatten,
    _list_flatten_with_keys,
    _list_unflatten,
    _namedtuple_flatten,
    _namedtuple_flatten_with_keys,
    _namedtuple_unflatten,
    _odict_flatten,
    _odict_unflatten,
    _ordereddict_flatten,
    _ordereddict_flatten_with_keys,
    _ordereddict_unflatten,
    _private_register_pytree_node,
    _register_namedtuple,
    _register_pytree_node,
    _tuple_flatten,
    _tuple_flatten_with_keys,
    _tuple_unflatten,
    is_namedtuple_class,
    is_structseq_class,
)

Context = Any
PyTree = Any
DumpableContext = Any
KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]
FlattenFn = FlattenFunc = Callable[[PyTree], tuple[list[Any], Context]]
UnflattenFn = UnflattenFunc = Callable[[Any, Context], PyTree]
FlattenWithKeysFn = FlattenWithKeysFunc = Callable[[PyTree], tuple[list[tuple[KeyEntry, Any]], Any]]
ToDumpableContextFn = Callable[[Context], DumpableContext]
FromDumpableContextFn = Callable[[DumpableContext], Context]
ToStrFunc = Callable[["TreeSpec", list[str]], str]
MaybeFromStrFunc = Callable[[str], tuple[Any, Context, str] | None]

_STRUCTSEQ = _nodes.NodeDef(tuple, lambda d: (list(d), None), None, lambda d: (_nodes._sequence_keys(d), None))


_private_register_pytree_node(_Size, lambda size: (list(size), None), lambda values, _: tuple(values))


def _get_node_type(tree):
    kind = type(tree)
    if kind not in SUPPORTED_NODES and is_namedtuple_class(kind):
        return _nodes.namedtuple
    return kind


def _definition(kind):
    """How a type is taken apart; None for that of leaves. The named tuples that operations return register on sight."""
    found = SUPPORTED_NODES.get(kind)
    if found is None and is_structseq_class(kind) and kind.__module__ == "torch.return_types":
        _private_register_pytree_node(
            kind,
            _STRUCTSEQ.flatten_fn,
            lambda values, context: kind(tuple(values)),
            flatten_with_keys_fn=_STRUCTSEQ.flatten_with_keys_fn,
            serialized_type_name=f"torch.return_types.{kind.__name__}",
            to_dumpable_context=lambda context: "null",
            from_dumpable_context=lambda text: kind,
        )
        found = SUPPORTED_NODES[kind]
    return found


def tree_is_leaf(tree, is_leaf=None):
    """Whether the value is not a container, or `is_leaf` says that it is a leaf."""
    return (is_leaf is not None and bool(is_leaf(tree))) or _definition(_get_node_type(tree)) is None


_is_leaf = tree_is_leaf


class TreeSpec:
    """The shape of a nest: its container's type, what the container needs to be built again, the shapes of its items."""

    __slots__ = ("_children", "_context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type, context, children_specs):
        self.type, self._context, self._children = type, context, list(children_specs)
        self.num_children = len(self._children)
        self.num_nodes = 1 + sum(child.num_nodes for child in self._children)
        self.num_leaves = 1 if type is None else sum(child.num_leaves for child in self._children)

    @property
    def context(self):
        return self._context

    @property
    def children_specs(self):
        return self._children

    def is_leaf(self):
        return self.type is None

    def children(self):
        return self._children.copy()

    def child(self, index):
        return self._children[index]

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self._context, self._children) == (other.type, other._context, other._children)

    def __hash__(self):
        context = self._context
        if self.type in _nodes.STANDARD_DICT_TYPES:
            context = tuple(context[1] if self.type is _nodes.defaultdict else context)
        elif isinstance(context, list):
            context = str(context)
        return hash((self.type, context, tuple(self._children)))

    def __repr__(self, indent=0):
        if self.type is None:
            return "*"
        # As torch prints it: the first item on the line, the others below it.
        items = [child.__repr__(indent + 2) for child in self._children]
        separator = ",\n" + " " * (indent + 2)
        return f"TreeSpec({self.type.__name__}, {self._context}, [{separator.join(items)}])"

    def __reduce__(self):
        return (LeafSpec, ()) if self.type is None else (TreeSpec, (self.type, self._context, self._children))

    def unflatten(self, leaves):
        """The nest of this shape with these leaves."""
        leaves = leaves if isinstance(leaves, (list, tuple)) else list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return _built(self, iter(leaves))

    def flatten_up_to(self, tree):
        """The parts of a nest, which begins like this shape, at the places of the shape's leaves."""
        found = []

        def collect(spec, tree):
            if spec.type is None:
                found.append(tree)
                return
            kind = _get_node_type(tree)
            dicts = _nodes.STANDARD_DICT_TYPES
            if kind != spec.type and not (kind in dicts and spec.type in dicts):
                raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {kind!r}.")
            items, context = SUPPORTED_NODES[kind].flatten_fn(tree)
            if len(items) != spec.num_children:
                raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(items)}.")
            if kind in dicts:
                keys = spec._context[1] if spec.type is _nodes.defaultdict else spec._context
                missing, extra = set(keys) - tree.keys(), tree.keys() - set(keys)
                if missing or extra:
                    parts = f" missing key(s): {missing};" if missing else ""
                    parts += f" extra key(s): {extra};" if extra else ""
                    raise ValueError(f"Node keys mismatch;{parts.removesuffix(';')}.")
                items = [tree[key] for key in keys]
            elif kind is not _nodes.deque and context != spec._context:
                raise ValueError(f"Node context mismatch for custom node type {spec.type!r}.")
            for child, item in zip(spec._children, items, strict=True):
                collect(child, item)

        collect(self, tree)
        return found


class LeafSpec(TreeSpec):
    """The shape of a leaf."""

    __slots__ = ()

    def __init__(self):
        super().__init__(None, None, [])


PyTreeSpec = TreeSpec
_LEAF_SPEC = LeafSpec()


def treespec_leaf():
    """The shape of a leaf."""
    return _LEAF_SPEC


def treespec_tuple(iterable=(), /):
    """The shape of a tuple of shapes."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping=(), /, **kwargs):
    """The shape of a dict of shapes."""
    shapes = dict(mapping, **kwargs)
    return TreeSpec(dict, list(shapes), list(shapes.values()))


def _flatten(tree, leaves, is_leaf):
    if is_leaf is not None and is_leaf(tree):
        leaves.append(tree)
        return _LEAF_SPEC
    kind = _get_node_type(tree)
    definition = _definition(kind)
    if definition is None:
        leaves.append(tree)
        return _LEAF_SPEC
    items, context = definition.flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(item, leaves, is_leaf) for item in items])


def tree_flatten(tree, is_leaf=None):
    """The leaves in order, and the shape of the nest."""
    leaves = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _built(spec, remaining):
    # There is no inner function here: one that calls itself is a cycle, which keeps the leaves alive until it is
    # collected.
    if spec.type is None:
        return next(remaining)
    items = [_built(child, remaining) for child in spec._children]
    return SUPPORTED_NODES[spec.type].unflatten_fn(items, spec._context)


def tree_unflatten(leaves, treespec):
    """The nest of a shape with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_iter(tree, is_leaf=None):
    """The leaves, one after the other."""
    if is_leaf is not None and is_leaf(tree):
        yield tree
        return
    definition = _definition(_get_node_type(tree))
    if definition is None:
        yield tree
        return
    for item in definition.flatten_fn(tree)[0]:
        yield from tree_iter(item, is_leaf)


def tree_leaves(tree, is_leaf=None):
    """The leaves in order."""
    return list(tree_iter(tree, is_leaf))


def tree_structure(tree, is_leaf=None):
    """The shape of a nest."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """The nest with the function of each leaf, and of what other nests have in the same places."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(rest) for rest in rests)]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def tree_map_(func, tree, *rests, is_leaf=None):
    """Call the function as tree_map does, and return the first nest."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(rest) for rest in rests)]
    for row in zip(*columns, strict=True):
        func(*row)
    return tree


def _predicate(type_or_types_or_pred):
    import types

    wanted = type_or_types_or_pred
    if isinstance(wanted, (type, tuple, types.UnionType)):
        return lambda value: isinstance(value, wanted)
    if callable(wanted):
        return wanted
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def map_only(type_or_types_or_pred, /):
    """Decorate a function to leave all but values of these types as they are."""
    wanted = _predicate(type_or_types_or_pred)
    return lambda func: lambda value: func(value) if wanted(value) else value


def tree_map_only(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """tree_map for the leaves of some types; the others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """tree_map_ for the leaves of some types."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types, /, pred, tree, is_leaf=None):
    return all(pred(value) for value in tree_iter(tree, is_leaf) if isinstance(value, type_or_types))


def tree_any_only(type_or_types, /, pred, tree, is_leaf=None):
    return any(pred(value) for value in tree_iter(tree, is_leaf) if isinstance(value, type_or_types))


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """One value for each leaf of a shape: a value above a nest counts for all that is below. None if it does not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.type is None:
        return None
    kind = _get_node_type(tree)
    if kind != treespec.type:
        return None
    items, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(items) != treespec.num_children or context != treespec.context:
        return None
    leaves = []
    for item, child in zip(items, treespec.children_specs, strict=True):
        below = _broadcast_to_and_flatten(item, child, is_leaf)
        if below is None:
            return None
        leaves += below
    return leaves


def arg_tree_leaves(*args, **kwargs):
    """The leaves of all arguments."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_iter(value)]


def _is_constant_holder(spec):
    return isinstance(spec.context, _nodes.ConstantNode)


def _retrieve_constant(spec):
    return tree_unflatten([], spec)


_WITH_PATHS = (
    "_generate_key_paths", "key_get", "keystr", "tree_flatten_with_path", "tree_leaves_with_path", "tree_map_with_path",
)  # fmt: skip


def __getattr__(name):
    if name in _WITH_PATHS:
        from mica.utils import _pytree_paths

        return getattr(_pytree_paths, name)
    if name in ("treespec_dumps", "treespec_loads", "treespec_pprint", "pytree_to_str", "str_to_pytree"):
        from mica.utils import _pytree_text

        return getattr(_pytree_text, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
