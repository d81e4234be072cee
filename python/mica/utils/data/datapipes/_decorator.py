"""Decorators of pipes: their method names, promises of determinism, checks of types."""

import functools
import inspect
import typing

from mica.utils.data.datapipes._typing import _DataPipeMeta
from mica.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe


class functional_datapipe:
    """Register the decorated class as a method of pipes: dp.name(...) is the class called with dp first."""

    def __init__(self, name, enable_df_api_tracing=False):
        self.name = name
        self.enable_df_api_tracing = enable_df_api_tracing

    def __call__(self, cls):
        made = cls if isinstance(cls, type) else _decorated_class(cls)
        if issubclass(made, IterDataPipe):
            IterDataPipe.register_datapipe_as_function(self.name, cls, self.enable_df_api_tracing)
        elif issubclass(made, MapDataPipe):
            MapDataPipe.register_datapipe_as_function(self.name, cls)
        return cls


def _decorated_class(decorated):
    """The class behind a non_deterministic decorator."""
    holder = getattr(decorated, "__self__", decorated)
    if not isinstance(holder, non_deterministic) or holder.cls is None:
        raise TypeError("`functional_datapipe` can only decorate IterDataPipe")
    return holder.cls


_determinism = False


class guaranteed_datapipes_determinism:
    """In a with block pipes that are marked as not deterministic are refused."""

    def __init__(self):
        global _determinism
        self.prev = _determinism
        _determinism = True

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        global _determinism
        _determinism = self.prev


class non_deterministic:
    """Mark a stream whose samples or their order differ between runs; or those whose arguments a function says so of."""

    cls = None

    def __init__(self, arg):
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(
                    f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {arg.__name__} is found"
                )
            self.cls = arg
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args, **kwargs):
        if self.cls is not None:
            if _determinism:
                raise TypeError(
                    f"{self.cls.__name__} is non-deterministic, but you set 'guaranteed_datapipes_determinism'. You can "
                    "turn off determinism for this DataPipe if that is acceptable for your application"
                )
            return self.cls(*args, **kwargs)
        if not (isinstance(args[0], type) and issubclass(args[0], IterDataPipe)):
            raise TypeError(f"Only `IterDataPipe` can be decorated, but {args[0].__name__} is found")
        self.cls = args[0]
        return self.deterministic_wrapper_fn

    def deterministic_wrapper_fn(self, *args, **kwargs):
        varies = self.deterministic_fn(*args, **kwargs)
        if not isinstance(varies, bool):
            raise TypeError(
                "deterministic_fn of `non_deterministic` decorator is required to return a boolean value, but "
                f"{type(varies)} is found"
            )
        if _determinism and varies:
            raise TypeError(
                f"{self.cls.__name__} is non-deterministic with the inputs, but you set "
                "'guaranteed_datapipes_determinism'. You can turn off determinism for this DataPipe if that is "
                "acceptable for your application"
            )
        return self.cls(*args, **kwargs)


def argument_validation(f):
    """Refuse arguments that are annotated as pipes and are something else."""
    signature = inspect.signature(f)
    hints = typing.get_type_hints(f)

    @functools.wraps(f)
    def checked(*args, **kwargs):
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            hint = typing.get_origin(hints.get(name)) or hints.get(name)
            if isinstance(hint, _DataPipeMeta) and not isinstance(value, IterDataPipe):
                raise TypeError(f"Expected argument '{name}' as a IterDataPipe, but found {type(value)}")
        return f(*args, **kwargs)

    return checked


_runtime_validation_enabled = True


class runtime_validation_disabled:
    """In a with block samples are not checked."""

    def __init__(self):
        global _runtime_validation_enabled
        self.prev = _runtime_validation_enabled
        _runtime_validation_enabled = False

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        global _runtime_validation_enabled
        _runtime_validation_enabled = self.prev


def _declared(cls):
    """The declared type of a class's samples: X where it derives from IterDataPipe[X], and otherwise Any."""
    for base in getattr(cls, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and issubclass(origin, IterDataPipe):
            return typing.get_args(base)[0]
    return typing.Any


def _fits(value, hint):
    import types

    if hint is typing.Any or isinstance(hint, typing.TypeVar):
        return True
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in args)
    if origin is None:
        return isinstance(value, hint) if isinstance(hint, type) else True
    if not isinstance(value, origin):
        return False
    if isinstance(value, tuple):
        if len(args) == 2 and args[1] is Ellipsis:
            return all(_fits(each, args[0]) for each in value)
        return len(args) == len(value) and all(map(_fits, value, args))
    if isinstance(value, (list, set, frozenset)):
        return all(_fits(each, args[0]) for each in value)
    if isinstance(value, dict):
        return all(_fits(key, args[0]) and _fits(each, args[1]) for key, each in value.items())
    return True


def runtime_validation(f):
    """Refuse samples that are not what the class declares: X of IterDataPipe[X]."""
    if f.__name__ != "__iter__":
        raise TypeError(f"Can not decorate function {f.__name__} with 'runtime_validation'")

    @functools.wraps(f)
    def checked(self):
        expected = _declared(type(self))
        for sample in f(self):
            if _runtime_validation_enabled and not _fits(sample, expected):
                raise RuntimeError(f"Expected an instance as subtype of {expected}, but found {sample}({type(sample)})")
            yield sample

    return checked
