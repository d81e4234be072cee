"""Signatures and texts of the engine's functions, from the type stubs, for programs that ask."""

import ast
import functools
import inspect
import os

# What the stubs call the types of arguments, as programs know them.
_TYPES = {"_bool": "bool", "_int": "int", "_float": "float", "_complex": "complex", "_dtype": "torch.dtype",
          "_device": "torch.device", "_Device": "torch.device", "_layout": "torch.layout", "_Sizes": "Sequence[int]",
          "_memory_format": "torch.memory_format"}  # fmt: skip


@functools.cache
def _functions():
    """name -> its definition in the stubs of nn.functional and nn.init, which share no name."""
    found = {}
    for stub in ("_nn_functional.pyi", "_nn_init.pyi"):
        path = os.path.join(os.path.dirname(os.path.dirname(__file__)), stub)
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, node)
    return found


@functools.cache
def _known():
    """The names that the stubs use for types of arguments."""
    import collections.abc
    import typing

    import mica

    names = {name: getattr(typing, name) for name in ("Any", "Callable", "Literal")}
    return {
        **names,
        "Sequence": collections.abc.Sequence,
        "Tensor": mica.Tensor,
        "Generator": mica.Generator,
        "torch": mica,
    }


def _annotation(node):
    """The type that an annotation of the stubs means, or its text where that is of the stubs alone."""
    if node is None:
        return inspect.Parameter.empty
    names = [_TYPES.get(each.id, each.id) for each in ast.walk(node) if isinstance(each, ast.Name)]
    text = ast.unparse(node)
    for ours, known in _TYPES.items():
        text = text.replace(ours, known) if any(name == known for name in names) else text
    try:
        return eval(text, dict(_known()))
    except (NameError, AttributeError, TypeError):
        return text


def _type_name(kind):
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _default(node):
    if node is None:
        return inspect.Parameter.empty
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


@functools.cache
def signature(name):
    """The signature of a function of nn.functional or nn.init; ValueError if it is not known."""
    node = _functions().get(name)
    if node is None:
        raise ValueError(f"no signature found for {name}")
    arguments, parameters = node.args, []
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for argument, default in zip(positional, defaults, strict=True):
        parameters.append(
            inspect.Parameter(
                argument.arg, kind, default=_default(default), annotation=_annotation(argument.annotation)
            )
        )
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(
                argument.arg, kind, default=_default(default), annotation=_annotation(argument.annotation)
            )
        )
    return inspect.Signature(parameters, return_annotation=_annotation(node.returns))


def _plain(known):
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in known.parameters.values()]
    return str(known.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def attribute(what, name, text):
    """The value of a function's attribute such as __signature__ or __doc__."""
    try:
        known = signature(name)
    except (ValueError, OSError):
        known = None
    if what == "__doc__":
        return text if known is None else f"{name}{_plain(known)} -> {_type_name(known.return_annotation)}\n\n{text}"
    if known is None:
        if what == "__annotations__":
            return {}
        if what == "__signature__":
            raise AttributeError(what)
        return None
    parameters = known.parameters.values()
    if what == "__signature__":
        return known
    if what == "__text_signature__":
        return _plain(known)
    if what == "__annotations__":
        return {each.name: each.annotation for each in parameters if each.annotation is not each.empty}
    keyword = what == "__kwdefaults__"
    values = {
        p.name: p.default for p in parameters if p.default is not p.empty and (p.kind is p.KEYWORD_ONLY) == keyword
    }
    return values or None if keyword else tuple(values.values()) or None
