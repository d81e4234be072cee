"""The shapes of nests as JSON, in torch's format, and as text."""

import json

from mica.utils._pytree import LeafSpec, TreeSpec, tree_unflatten
from mica.utils._pytree import _definition as register_on_sight
from mica.utils._pytree_nodes import (
    NO_SERIALIZED_TYPE_NAME_FOUND,
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    SUPPORTED_SERIALIZED_TYPES,
)

_PROTOCOL = 1
_RETURN_TYPES = "torch.return_types."  # named tuples of operations


def _to_json(spec):
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    definition = SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    if definition is None:
        raise NotImplementedError(f"Serializing {spec.type} in pytree is not registered.")
    if definition.serialized_type_name == NO_SERIALIZED_TYPE_NAME_FOUND:
        raise NotImplementedError(
            f"No registered serialization name for {spec.type} found. "
            "Please update your _register_pytree_node call with a `serialized_type_name` kwarg."
        )
    if definition.to_dumpable_context is not None:
        context = definition.to_dumpable_context(spec.context)
    else:
        try:
            context = json.dumps(spec.context)
        except TypeError as error:
            raise TypeError(
                "Unable to serialize context. Please make the context json dump-able, or register a custom serializer "
                "using _register_pytree_node."
            ) from error
    children = [_to_json(child) for child in spec.children_specs]
    return {"type": definition.serialized_type_name, "context": context, "children_spec": children}


def _from_json(data):
    name = data["type"]
    if name is None and data["context"] is None and not data["children_spec"]:
        return LeafSpec()
    if name.startswith(_RETURN_TYPES) and name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        from mica import return_types

        kind = getattr(return_types, name.removeprefix(_RETURN_TYPES), None)
        if isinstance(kind, type):
            register_on_sight(kind)
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"Deserializing {name} in pytree is not registered.")
    kind = SERIALIZED_TYPE_TO_PYTHON_TYPE[name]
    convert = SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context or json.loads
    return TreeSpec(kind, convert(data["context"]), [_from_json(child) for child in data["children_spec"]])


def treespec_dumps(treespec, protocol=None):
    """The shape as JSON."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    if protocol not in (None, _PROTOCOL):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return json.dumps([_PROTOCOL, _to_json(treespec)])


def treespec_loads(serialized):
    """The shape that `treespec_dumps` has written."""
    protocol, schema = json.loads(serialized)
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return _from_json(schema)


class _Asterisk(str):
    __slots__ = ()

    def __repr__(self):
        return "*"


def treespec_pprint(treespec):
    """A nest of the shape with stars for leaves, as text."""
    return repr(tree_unflatten([_Asterisk("*")] * treespec.num_leaves, treespec))


pytree_to_str = treespec_dumps
str_to_pytree = treespec_loads
