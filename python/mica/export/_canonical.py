"""The arguments of a call as torch's graphs have them: by their places, lists as lists, and without what is the default."""

import mica
from mica import _C

__all__ = ["canonical"]

_LISTS = ("int[", "SymInt[", "float[", "bool[")


def _length(kind):
    """The number that a scalar is repeated where a list of this type is wanted; None for other types."""
    kind = str(kind).removesuffix("?")
    if not kind.startswith(_LISTS) or not kind.endswith("]") or kind.endswith("[]"):
        return None
    return int(kind[kind.index("[") + 1 : -1])


def _as_list(declared, value):
    length = _length(declared.type)
    if length is None:
        return list(value) if isinstance(value, tuple) and not hasattr(value, "_fields") else value
    if isinstance(value, (list, tuple)):
        return list(value) * length if len(value) == 1 and length > 1 else list(value)
    return value if value is None or isinstance(value, str) else [value] * length


def _is_default(declared, value):
    if not declared.has_default_value():
        return False
    default = _as_list(declared, declared.default_value)
    if type(value) is not type(default):
        return False
    if isinstance(value, list):
        is_plain = all(type(each) in (bool, int, float) for each in value)
        return is_plain and value == default
    return value is None or (type(value) in (bool, int, float, str) and value == default)


def _makes_a_tensor(named):
    return {"dtype", "layout", "device", "pin_memory"} <= named.keys()


def canonical(target, args, kwargs):
    """(args, kwargs) of a call of an overload."""
    schema = target._schema
    positional = [each for each in schema.arguments if not each.kwarg_only]
    named = {each.name: each for each in schema.arguments if each.kwarg_only}
    if len(args) > len(positional):
        return args, kwargs
    given = dict(zip((each.name for each in positional), args, strict=False))
    given |= {("self" if key == "input" and "self" not in given else key): value for key, value in kwargs.items()}
    if given.keys() - {each.name for each in schema.arguments}:
        return args, kwargs
    made = []
    for each in positional:
        if each.name not in given and not each.has_default_value():
            return args, kwargs
        made.append(_as_list(each, given.get(each.name, each.default_value if each.has_default_value() else None)))
    while made and _is_default(positional[len(made) - 1], made[-1]):
        made.pop()
    if _makes_a_tensor(named) and target._overloadpacket.__name__ not in ("to", "_to_copy"):
        if given.get("pin_memory") is None:
            given["pin_memory"] = False
        is_like = any(isinstance(each, _C.TensorBase) for each in args)
        if given.get("device") is None and not is_like:
            given["device"] = mica.get_default_device()
    if isinstance(given.get("device"), (str, int)) and "device" in named:
        given["device"] = mica.device(given["device"])
    rest = {name: _as_list(named[name], given[name]) for name in named if name in given}
    return tuple(made), {name: value for name, value in rest.items() if not _is_default(named[name], value)}
