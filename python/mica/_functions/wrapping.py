"""functools.wraps without functools: importing Mica loads neither functools nor the modules that it imports."""

from mica import _C


def wraps(function):
    """Give the function below the names, the text and the attributes of another, as functools.wraps does."""

    def take_over(wrapper):
        for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
            if hasattr(function, name):
                setattr(wrapper, name, getattr(function, name))
        wrapper.__dict__.update(function.__dict__)
        wrapper.__wrapped__ = function
        return wrapper

    return take_over


def asked_among(values):
    """The values that are not tensors and have a __torch_function__, such as proxies."""
    return [
        x for x in values
        if type(x) is not _C.Tensor and hasattr(type(x), "__torch_function__") and not isinstance(x, _C.TensorBase)
    ]  # fmt: skip


def asks_as_called(function):
    """The function, which first asks arguments that are not tensors and have a __torch_function__, as the engine's do."""

    @wraps(function)
    def asking(*args, **kwargs):
        if others := asked_among((*args, *kwargs.values())):
            return _C._handle_torch_function(asking, others, *args, **kwargs)
        return function(*args, **kwargs)

    return asking


def asks_arguments(function):
    """Wraps a function that is written in Python in torch: __torch_function__ gets arguments that have defaults by their names.

    It is for functions that only choose what to call: tensors are asked by what they call.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    required = code.co_argcount - len(function.__defaults__ or ())

    def asked(args, kwargs):
        given = dict(zip(names[required:], function.__defaults__ or (), strict=False))
        given |= {**(function.__kwdefaults__ or {}), **dict(zip(names, args, strict=False)), **kwargs}
        positional = [given.pop(name) for name in names[:required] if name in given]
        return positional, given

    @wraps(function)
    def asking(*args, **kwargs):
        if others := asked_among((*args, *kwargs.values())):
            positional, named = asked(args, kwargs)
            return _C._handle_torch_function(asking, others, *positional, **named)
        return function(*args, **kwargs)

    return asking
