"""The schema of a Python function, from its annotations."""

import collections.abc
import inspect
import types
import typing

import mica

_SCALARS = {
    mica.Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str",
    mica.dtype: "ScalarType", mica.device: "Device", mica.layout: "Layout", mica.Generator: "Generator",
    mica.memory_format: "MemoryFormat",
}  # fmt: skip
_NUMBER = frozenset({int, float, bool})


def _type_text(annotation):
    """The schema's type for an annotation; None if there is none."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [each for each in arguments if each is not type(None)]
        if set(rest) == _NUMBER:
            inner = "Scalar"
        elif len(rest) == 1:
            inner = _type_text(rest[0])
        else:
            return None
        return None if inner is None else inner + ("?" if len(rest) < len(arguments) else "")
    if origin in (list, collections.abc.Sequence) and len(arguments) == 1:
        inner = _type_text(arguments[0])
        return None if inner is None else f"{inner}[]"
    if origin is tuple and arguments and len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = _type_text(arguments[0])
        return None if inner is None else f"{inner}[]"
    if origin is typing.Annotated:
        return _type_text(arguments[0])
    return None


def _default_text(value):
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, mica.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, mica.device):
        return f'"{value}"'
    return str(value)


def _returns_text(annotation):
    if annotation in (None, type(None)):
        return "()"
    if typing.get_origin(annotation) is tuple and Ellipsis not in typing.get_args(annotation):
        parts = [_type_text(each) for each in typing.get_args(annotation)]
        if None not in parts:
            return f"({', '.join(parts)})"
    text = _type_text(annotation)
    if text is None:
        raise ValueError(f"infer_schema(func): Return has unsupported type {annotation}.")
    return text.replace("SymInt", "SymInt")


def infer_schema(prototype_function, /, *, mutates_args, op_name=None):
    """The schema of a function whose parameters and result are annotated; `mutates_args` names what it changes."""
    unknown = object()
    signature = inspect.signature(prototype_function)
    try:
        hints = typing.get_type_hints(prototype_function)
    except Exception:
        hints = {}
    everything = mutates_args == "unknown"
    mutated = set() if everything else {mutates_args} if isinstance(mutates_args, str) else set(mutates_args)
    parts, keyword_only, names = [], False, set()
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ValueError(
                "infer_schema(func): We do not support positional-only args, varargs, or varkwargs. "
                f"Got signature {signature}"
            )
        names.add(name)
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parts.append("*")
        annotation = hints.get(name, parameter.annotation)
        if annotation is parameter.empty:
            raise ValueError(
                f"infer_schema(func): Parameter {name} must have a type annotation. (Got signature {signature})"
            )
        text = _type_text(annotation) or unknown
        if text is unknown:
            raise ValueError(
                f"infer_schema(func): Parameter {name} has unsupported type {annotation}. "
                f"The valid types are: {[getattr(t, '__name__', t) for t in _SCALARS]}, optionals and lists of them. "
                f"(Got signature {signature})"
            )
        if (everything or name in mutated) and text.startswith("Tensor"):
            text = f"Tensor(a{len(parts)}!){text.removeprefix('Tensor')}"
        elif name in mutated:
            raise ValueError(
                f"infer_schema(func): Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated"
            )
        default = "" if parameter.default is parameter.empty else f"={_default_text(parameter.default)}"
        parts.append(f"{text} {name}{default}")
    if mutated - names:
        raise ValueError(
            f"{mutated - names} in mutates_args were not found in the custom op's signature. mutates_args should contain the names of all args that the custom op mutates."
        )
    annotation = hints.get("return", signature.return_annotation)
    if annotation is inspect.Signature.empty:
        raise ValueError(
            f"infer_schema(func): No return type annotation was provided. Please add one. (Got signature {signature})"
        )
    return f"{op_name or ''}({', '.join(parts)}) -> {_returns_text(annotation)}"
