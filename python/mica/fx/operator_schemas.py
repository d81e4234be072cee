"""Arguments of a call in one form: by the parameters of what is called, defaults filled in."""

import inspect
import typing

from mica import _C

__all__ = ["ArgsKwargsPair", "check_for_mutable_operation", "get_signature_for_torch_op", "normalize_function",
           "normalize_module"]  # fmt: skip


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
        fitting = [pair for pair in fitting if _types_fit(pair[0], arg_types, kwarg_types)]
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
