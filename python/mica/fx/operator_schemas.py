"""Arguments of a call in one form: by the parameters of what is called, defaults filled in."""

import inspect
import numbers
import types
import typing
import warnings

from mica import _C

__all__ = [
    "ArgsKwargsPair", "check_for_mutable_operation", "create_type_hint", "get_signature_for_torch_op",
    "normalize_function", "normalize_module", "type_matches",
]  # fmt: skip


class ArgsKwargsPair(typing.NamedTuple):
    """Positional arguments, and those by name."""

    args: tuple
    kwargs: dict


_PYTHON_TYPES = {"Tensor": _C.Tensor, "int": int, "SymInt": int, "float": float, "bool": bool, "str": str,
                 "Scalar": (int, float, bool, complex), "ScalarType": _C.dtype, "Device": _C.device}  # fmt: skip


def _signature(schema):
    kinds = inspect.Parameter
    parameters = []
    for argument in schema.arguments:
        # Schemas have parameters named "self", which torch's functions call "input", and "from", which is a keyword of Python.
        name = {"self": "input", "from": "from_"}.get(argument.name, argument.name)
        kind = kinds.KEYWORD_ONLY if argument.kwarg_only else kinds.POSITIONAL_OR_KEYWORD
        default = argument.default_value if argument.has_default_value() else kinds.empty
        parameters.append(kinds(name, kind, default=default, annotation=argument.type))
    names = [p.name for p in parameters]
    return inspect.Signature(parameters) if len(set(names)) == len(names) else None


def get_signature_for_torch_op(op, return_schemas=False):
    """The signatures of an operator or of a function of torch's: one per overload; None if there are none."""
    from mica import ops

    if hasattr(op, "_schema"):
        schemas = [op._schema]
    elif isinstance(op, _C._Function):  # in torch this is a function of Python, without a schema
        schemas = []
    else:
        packet = op if hasattr(op, "_qualified_op_name") else getattr(ops.aten, getattr(op, "__name__", ""), None)
        schemas = (
            [] if not hasattr(packet, "overloads") else [getattr(packet, name)._schema for name in packet.overloads()]
        )
    pairs = [(signature, schema) for schema in schemas if (signature := _signature(schema)) is not None]
    signatures = [signature for signature, _ in pairs] or None
    return (signatures, [schema for _, schema in pairs] or None) if return_schemas else signatures


def _fits(declared, given):
    """Whether an argument of a Python type may be given where a schema declares a type."""
    text = str(declared)
    if text.endswith("?"):
        return given is type(None) or _fits(text[:-1], given)
    if "[" in text:
        return given in (list, tuple) or typing.get_origin(given) in (list, tuple)
    wanted = _PYTHON_TYPES.get(text.partition("(")[0])
    return wanted is None or (isinstance(given, type) and issubclass(given, wanted))


def _types_fit(signature, arg_types, kwarg_types):
    try:
        bound = signature.bind(*arg_types, **(kwarg_types or {}))
    except TypeError:
        return False
    return all(_fits(signature.parameters[name].annotation, given) for name, given in bound.arguments.items())


def _normalized(signature, args, kwargs, only_kwargs):
    kinds = inspect.Parameter
    if any(p.kind not in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY) for p in signature.parameters.values()):
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    positional, named = [], {}
    for i, name in enumerate(signature.parameters):
        if only_kwargs or i >= len(args):
            named[name] = bound.arguments[name]
        else:
            positional.append(bound.arguments[name])
    return ArgsKwargsPair(tuple(positional), named)


def normalize_function(
    target, args, kwargs=None, arg_types=None, kwarg_types=None, normalize_to_only_use_kwargs=False
):  # fmt: skip
    """The arguments of a call of a function in one form; None if the function does not say what it takes.

    Where several overloads take the arguments, arg_types and kwarg_types choose; without them that is an error.
    """
    kwargs = kwargs or {}
    if getattr(target, "__module__", None) in ("_operator", "builtins", "math"):
        return None
    if not hasattr(target, "_qualified_op_name"):
        try:
            own = inspect.signature(inspect.unwrap(target))
        except ValueError:  # a function of the engine, which has schemas
            own = None
        if own is not None:
            return _normalized(own, args, kwargs, normalize_to_only_use_kwargs)
    fitting = []
    for signature in get_signature_for_torch_op(target) or []:
        if (found := _normalized(signature, args, kwargs, normalize_to_only_use_kwargs)) is not None:
            fitting.append((signature, found))
    if len(fitting) > 1 and arg_types is not None:
        fitting = [pair for pair in fitting if _types_fit(pair[0], arg_types, kwarg_types)][:1]
    if len(fitting) > 1:
        schemas = "\n".join(str(signature) for signature, _ in fitting)
        raise RuntimeError(
            f"Tried to normalize arguments to torch.{getattr(target, '__name__', target)} but the schema match was ambiguous! Please provide "
            f"argument types to the normalize_arguments() call. Available schemas:\n{schemas}"
        )
    return fitting[0][1] if fitting else None


def normalize_module(root, target, args, kwargs=None, normalize_to_only_use_kwargs=False):
    """The arguments of a call of a layer of torch.nn's in one form; None for a module of another kind."""
    from mica import nn

    module = root.get_submodule(target)
    if getattr(nn, type(module).__name__, None) is not type(module):
        return None
    return _normalized(inspect.signature(module.forward), args, kwargs or {}, normalize_to_only_use_kwargs)


def check_for_mutable_operation(target, args, kwargs):
    """Raise RuntimeError if every overload that takes the arguments writes into one of them."""
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    fitting = []
    for signature, schema in zip(signatures or (), schemas or (), strict=True):
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            continue
        fitting.append(schema)
    if len(fitting) == 1 and fitting[0].is_mutable:
        raise RuntimeError(f"Tried to trace mutable operation {fitting[0]}. FX only supports functional code")


def create_type_hint(x):
    """The type of lists or tuples whose items have the types in `x`, a list or a tuple; what is neither stays as it is.

    The items' type is the one of `x` from which the others derive, or Any.
    """
    if not isinstance(x, (list, tuple)):
        return x
    if not all(isinstance(each, type) or typing.get_origin(each) is not None for each in x):
        warnings.warn(f"We were not able to successfully create type hint from the type {x}", stacklevel=2)
        return x
    classes = [each for each in x if isinstance(each, type)]
    bases = [each for each in classes if len(classes) == len(x) and all(issubclass(other, each) for other in classes)]
    base = bases[0] if bases else typing.Any
    return list[base] if isinstance(x, list) else tuple[base, ...]


def _items_match(item, argument_type):
    """Whether lists or tuples of a type have items of another type only."""
    if typing.get_origin(argument_type) not in (list, tuple):
        return False
    kinds = [each for each in typing.get_args(argument_type) if each is not Ellipsis]
    return all(isinstance(kind, type) and issubclass(kind, item) for kind in kinds)


def type_matches(signature_type, argument_type):
    """Whether a value of a type may be given where a signature has a type. An int is taken for a list of them."""
    origin, parts = typing.get_origin(signature_type), typing.get_args(signature_type)
    if signature_type is argument_type or signature_type == argument_type:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(each, argument_type) for each in parts)
    if origin is list and parts == (int,) and argument_type is int:
        return True
    if origin is list:
        if not isinstance(parts[0], type):
            warnings.warn(
                f"Does not support nested parametric types, got {signature_type}. Please file a bug.", stacklevel=2
            )
            return False
        return _items_match(parts[0], argument_type)
    if signature_type is int and argument_type is _C.dtype:  # dtypes are numbers in schemas
        return True
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    return (
        isinstance(signature_type, type)
        and isinstance(argument_type, type)
        and issubclass(argument_type, signature_type)
    )
