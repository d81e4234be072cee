"""Which types of containers a nest is made of, and how each is taken apart and put together: the registry of utils._pytree."""

import dataclasses
import importlib
import os
import threading
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

from mica.utils._pytree_keys import GetAttrKey, MappingKey, SequenceKey

NO_SERIALIZED_TYPE_NAME_FOUND = "NO_SERIALIZED_TYPE_NAME_FOUND"


class NodeDef(NamedTuple):
    """How a type of containers is taken apart and put together."""

    type: type
    flatten_fn: Callable
    unflatten_fn: Callable
    flatten_with_keys_fn: Callable | None


class _SerializeNodeDef(NamedTuple):
    typ: type
    serialized_type_name: str
    to_dumpable_context: Callable | None
    from_dumpable_context: Callable | None


_NODE_REGISTRY_LOCK = threading.RLock()
os.register_at_fork(
    before=_NODE_REGISTRY_LOCK.acquire,
    after_in_parent=_NODE_REGISTRY_LOCK.release,
    after_in_child=_NODE_REGISTRY_LOCK.release,
)
SUPPORTED_NODES: dict[type, NodeDef] = {}
SUPPORTED_SERIALIZED_TYPES: dict[type, _SerializeNodeDef] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, type] = {}
CONSTANT_NODES: set[type] = set()


# ---- registration


def _private_register_pytree_node(
    cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None, from_dumpable_context=None,
    flatten_with_keys_fn=None,
):  # fmt: skip
    with _NODE_REGISTRY_LOCK:
        if cls in SUPPORTED_NODES:
            raise ValueError(f"{cls} is already registered as pytree node.")
        if (to_dumpable_context is None) != (from_dumpable_context is None):
            raise ValueError(
                f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered."
            )
        SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
        name = NO_SERIALIZED_TYPE_NAME_FOUND if serialized_type_name is None else serialized_type_name
        SUPPORTED_SERIALIZED_TYPES[cls] = _SerializeNodeDef(cls, name, to_dumpable_context, from_dumpable_context)
        SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = cls


def register_pytree_node(
    cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None, from_dumpable_context=None,
    flatten_with_keys_fn=None,
):  # fmt: skip
    """Let values of a type be containers: `flatten_fn` returns the items and what `unflatten_fn` needs beside them."""
    _private_register_pytree_node(
        cls,
        flatten_fn,
        unflatten_fn,
        serialized_type_name=serialized_type_name,
        to_dumpable_context=to_dumpable_context,
        from_dumpable_context=from_dumpable_context,
        flatten_with_keys_fn=flatten_with_keys_fn,
    )


def _register_pytree_node(
    cls, flatten_fn, unflatten_fn, to_str_fn=None, maybe_from_str_fn=None, *, serialized_type_name=None,
    to_dumpable_context=None, from_dumpable_context=None, flatten_with_keys_fn=None,
):  # fmt: skip
    """The older name of `register_pytree_node`."""
    import warnings

    warnings.warn(
        "`torch.utils._pytree._register_pytree_node` is deprecated. "
        "Please use `torch.utils._pytree.register_pytree_node` instead.",
        FutureWarning,
        stacklevel=2,
    )
    _private_register_pytree_node(
        cls,
        flatten_fn,
        unflatten_fn,
        serialized_type_name=serialized_type_name,
        to_dumpable_context=to_dumpable_context,
        from_dumpable_context=from_dumpable_context,
        flatten_with_keys_fn=flatten_with_keys_fn,
    )


def _deregister_pytree_node(cls):
    with _NODE_REGISTRY_LOCK:
        del SUPPORTED_NODES[cls]
        definition = SUPPORTED_SERIALIZED_TYPES.pop(cls)
        SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(definition.serialized_type_name, None)
        CONSTANT_NODES.discard(cls)


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """Let a dataclass be a container of its fields; those that are None, or dropped, are no items."""
    drop = list(drop_field_names or ())
    if field_names is None:
        if not dataclasses.is_dataclass(cls):
            raise ValueError(
                "field_names must be specified with a list of all fields used to initialize the class, as it is not a "
                "dataclass."
            )
        names = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in drop]
    else:
        names = list(field_names)
        if dataclasses.is_dataclass(cls):
            known = {f.name for f in dataclasses.fields(cls) if f.init}
            left = known - set(names) - set(drop)
            if left or set(names) - known:
                raise ValueError(
                    f"field_names {names} must include all dataclass fields: missing {sorted(left)}, unexpected "
                    f"{sorted(set(names) - known)}"
                )

    def with_keys(obj):
        given = [(name, getattr(obj, name)) for name in names]
        present = [(name, value) for name, value in given if value is not None]
        absent = [name for name, value in given if value is None]
        return [(GetAttrKey(name), value) for name, value in present], [[name for name, _ in present], absent]

    def flatten(obj):
        items, context = with_keys(obj)
        return [value for _, value in items], context

    def unflatten(values, context):
        present, absent = context
        return cls(**dict(zip(present, values, strict=True)), **dict.fromkeys(absent))

    _private_register_pytree_node(
        cls, flatten, unflatten, serialized_type_name=serialized_type_name, flatten_with_keys_fn=with_keys
    )


class ConstantNode(NamedTuple):
    """The context of a constant: the value itself."""

    value: Any


def register_constant(cls):
    """Let values of a type be part of a nest's shape instead of its leaves; they must have `__eq__` and `__hash__`."""
    if cls.__eq__ is object.__eq__:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__eq__` implementation.")
    if cls.__hash__ is None:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__hash__` implementation.")
    _private_register_pytree_node(
        cls,
        lambda value: ([], ConstantNode(value)),
        lambda values, context: context.value,
        flatten_with_keys_fn=lambda value: ([], ConstantNode(value)),
    )
    CONSTANT_NODES.add(cls)


def is_constant_class(cls):
    return isinstance(cls, type) and cls in CONSTANT_NODES


# ---- named tuples


def is_namedtuple_class(cls):
    if not isinstance(cls, type) or not issubclass(cls, tuple):
        return False
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(fields, tuple)
        and all(type(name) is str for name in fields)
        and callable(getattr(cls, "_make", None))
    )


def is_namedtuple(obj):
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj):
    return is_namedtuple_class(type(obj))


def is_structseq_class(cls):
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(
            isinstance(getattr(cls, name, None), int) for name in ("n_fields", "n_sequence_fields", "n_unnamed_fields")
        )
    )


def is_structseq(obj):
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj):
    return is_structseq_class(type(obj))


def _register_namedtuple(cls, *, serialized_type_name):
    _private_register_pytree_node(
        cls,
        _namedtuple_flatten,
        _namedtuple_unflatten,
        serialized_type_name=serialized_type_name,
        to_dumpable_context=_namedtuple_serialize,
        from_dumpable_context=_namedtuple_deserialize,
        flatten_with_keys_fn=_namedtuple_flatten_with_keys,
    )


# ---- Python's own containers


def _sequence_keys(values):
    return [(SequenceKey(i), value) for i, value in enumerate(values)]


def _mapping_keys(mapping):
    return [(MappingKey(key), value) for key, value in mapping.items()]


def _tuple_flatten(d):
    return list(d), None


def _tuple_flatten_with_keys(d):
    return _sequence_keys(d), None


def _tuple_unflatten(values, context):
    return tuple(values)


def _list_flatten(d):
    return d, None


def _list_flatten_with_keys(d):
    return _sequence_keys(d), None


def _list_unflatten(values, context):
    return list(values)


def _dict_flatten(d):
    return list(d.values()), list(d.keys())


def _dict_flatten_with_keys(d):
    return _mapping_keys(d), list(d.keys())


def _dict_unflatten(values, context):
    return dict(zip(context, values, strict=True))


def _namedtuple_flatten(d):
    return list(d), type(d)


def _namedtuple_flatten_with_keys(d):
    return [(GetAttrKey(name), value) for name, value in zip(d._fields, d, strict=True)], type(d)


def _namedtuple_unflatten(values, context):
    return context(*values)


def _namedtuple_serialize(context):
    definition = SUPPORTED_SERIALIZED_TYPES.get(context)
    if definition is None:
        raise NotImplementedError(
            f"Can't serialize TreeSpec of namedtuple class {context} because we didn't register a serializated_type_name. "
            "Please register using `_register_namedtuple`."
        )
    return definition.serialized_type_name


def _namedtuple_deserialize(dumpable_context):
    return SERIALIZED_TYPE_TO_PYTHON_TYPE[dumpable_context]


_ordereddict_flatten, _ordereddict_flatten_with_keys = _dict_flatten, _dict_flatten_with_keys


def _ordereddict_unflatten(values, context):
    return OrderedDict(zip(context, values, strict=True))


_odict_flatten = _ordereddict_flatten
_odict_unflatten = _ordereddict_unflatten


def _defaultdict_flatten(d):
    return list(d.values()), [d.default_factory, list(d.keys())]


def _defaultdict_flatten_with_keys(d):
    return _mapping_keys(d), [d.default_factory, list(d.keys())]


def _defaultdict_unflatten(values, context):
    factory, keys = context
    return defaultdict(factory, zip(keys, values, strict=True))


def _defaultdict_serialize(context):
    factory, keys = context
    return {
        "default_factory_module": getattr(factory, "__module__", None),
        "default_factory_name": getattr(factory, "__qualname__", None),
        "dict_context": keys,
    }


def _defaultdict_deserialize(dumpable_context):
    module, name = dumpable_context["default_factory_module"], dumpable_context["default_factory_name"]
    factory = None if module is None else getattr(importlib.import_module(module), name)
    return [factory, dumpable_context["dict_context"]]


def _deque_flatten(d):
    return list(d), d.maxlen


def _deque_flatten_with_keys(d):
    return _sequence_keys(d), d.maxlen


def _deque_unflatten(values, context):
    return deque(values, maxlen=context)


for _cls, _flatten, _unflatten, _name, _with_keys, _dumps in (
    (tuple, _tuple_flatten, _tuple_unflatten, "builtins.tuple", _tuple_flatten_with_keys, None),
    (list, _list_flatten, _list_unflatten, "builtins.list", _list_flatten_with_keys, None),
    (dict, _dict_flatten, _dict_unflatten, "builtins.dict", _dict_flatten_with_keys, None),
    (namedtuple, _namedtuple_flatten, _namedtuple_unflatten, "collections.namedtuple", _namedtuple_flatten_with_keys,
     (_namedtuple_serialize, _namedtuple_deserialize)),
    (OrderedDict, _ordereddict_flatten, _ordereddict_unflatten, "collections.OrderedDict",
     _ordereddict_flatten_with_keys, None),
    (defaultdict, _defaultdict_flatten, _defaultdict_unflatten, "collections.defaultdict",
     _defaultdict_flatten_with_keys, (_defaultdict_serialize, _defaultdict_deserialize)),
    (deque, _deque_flatten, _deque_unflatten, "collections.deque", _deque_flatten_with_keys, None),
):  # fmt: skip
    _to, _from = _dumps or (None, None)
    _private_register_pytree_node(
        _cls, _flatten, _unflatten, serialized_type_name=_name, to_dumpable_context=_to, from_dumpable_context=_from,
        flatten_with_keys_fn=_with_keys,
    )  # fmt: skip

STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
