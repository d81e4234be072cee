"""Types of nodes as text: in the code of a graph, and in its listing."""

import re
import types
import typing

import mica

__all__ = ["annotation_of", "type_name"]

_OLD_NAMES = {list: typing.List, dict: typing.Dict, set: typing.Set, frozenset: typing.FrozenSet, tuple: typing.Tuple}  # noqa: UP006


def type_name(kind):
    """A type as a person writes it."""
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        if kind.__module__ == "builtins":
            return kind.__qualname__
        if kind.__module__ == "mica" or kind.__module__.startswith("mica."):
            module = "torch" + kind.__module__.removeprefix("mica")
            return (
                f"torch.{kind.__name__}"
                if getattr(mica, kind.__name__, None) is kind
                else f"{module}.{kind.__qualname__}"
            )
        return f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(kind, types.FunctionType):
        return kind.__name__
    return "..." if kind is ... else repr(kind)


def annotation_of(kind, name_of):
    """A type as code that can be evaluated: `name_of(value, hint)` says what a value is called there."""
    if kind == ():
        return "()"
    if kind is ...:
        return name_of(kind, "_")
    if isinstance(kind, types.UnionType):
        return "|".join(annotation_of(each, name_of) for each in kind.__args__)
    origin = getattr(kind, "__origin__", None)
    if origin is None:
        if kind is mica.device:
            return name_of(kind, "device")
        text = type_name(kind)
        return name_of(kind, text if text.startswith("torch.") else re.sub(r"[^0-9a-zA-Z_]+", "_", text))
    outer = _OLD_NAMES.get(origin, origin) if isinstance(kind, typing._GenericAlias) else origin
    outer = name_of(outer, re.sub(r"[^0-9a-zA-Z_]+", "_", type_name(outer)))
    inner = getattr(kind, "__args__", ())
    return f"{outer}[{','.join(annotation_of(each, name_of) for each in inner)}]" if inner else outer
