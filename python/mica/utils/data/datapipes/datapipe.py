"""The bases of pipes, with the functions that were registered as their methods."""

import functools
import pickle
from typing import ClassVar, TypeVar

from mica.utils.data.datapipes._hook_iterator import _SnapshotState
from mica.utils.data.datapipes._typing import _DataPipeMeta, _IterDataPipeMeta
from mica.utils.data.datapipes.utils.common import (
    _deprecation_warning,
    _iter_deprecated_functional_names,
    _map_deprecated_functional_names,
)
from mica.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class DataChunk(list[_T]):
    """A batch that a pipe has made."""

    def __init__(self, items):
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent=""):
        return indent + "[" + ", ".join(map(str, self)) + "]"

    def raw_iterator(self):
        yield from self.items


class _Registered:
    """What both kinds of pipes do: methods by registration, hooks of pickling, and their names as text."""

    # Each kind has a dict of functions and hooks of its own.
    functions: ClassVar[dict]
    _deprecated_names: ClassVar[dict]
    reduce_ex_hook = None
    getstate_hook = None
    str_hook = None
    repr_hook = None

    def __getattr__(self, name):
        function = self._base().functions.get(name)
        if function is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}")
        if name in self._deprecated_names:
            _deprecation_warning(**self._deprecated_names[name])
        bound = functools.partial(function, self)
        functools.update_wrapper(bound, function, assigned=("__doc__",))
        return bound

    @classmethod
    def register_function(cls, function_name, function):
        """Make function(pipe, ...) the method of this name of all pipes of the kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name, cls_to_register, enable_df_api_tracing=False):
        """Let pipe.function_name(...) be cls_to_register(pipe, ...)."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")

        def make(source, *args, **kwargs):
            return cls_to_register(source, *args, **kwargs)

        functools.update_wrapper(make, cls_to_register, assigned=("__doc__",))
        cls.functions[function_name] = make

    @classmethod
    def set_getstate_hook(cls, hook_fn):
        """Let a function change what pickles of pipes hold; None ends it."""
        base = cls._base()
        if base.getstate_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing getstate_hook")
        base.getstate_hook = hook_fn

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn):
        """Let a function pickle pipes; NotImplementedError from it leaves one to the usual way. None ends it."""
        base = cls._base()
        if base.reduce_ex_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing reduce_ex_hook")
        base.reduce_ex_hook = hook_fn

    def _hooked_state(self, state):
        hook = self._base().getstate_hook
        return state if hook is None else hook(state)

    def __getstate__(self):
        return self._hooked_state(self.__dict__)

    def __reduce_ex__(self, *args, **kwargs):
        hook = self._base().reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass
        return super().__reduce_ex__(*args, **kwargs)

    def __repr__(self):
        return type(self).__qualname__ if self.repr_hook is None else self.repr_hook(self)

    def __str__(self):
        return type(self).__qualname__ if self.str_hook is None else self.str_hook(self)

    def __dir__(self):
        return [*super().__dir__(), *self.functions]


class IterDataPipe(_Registered, IterableDataset[_T_co], metaclass=_IterDataPipeMeta):
    """A stream of samples: a subclass has __iter__, and reset() where it holds state. It has one valid iterator at a time."""

    functions: ClassVar[dict] = {}
    _deprecated_names = _iter_deprecated_functional_names
    _valid_iterator_id = None
    _number_of_samples_yielded = 0
    _snapshot_state = _SnapshotState.NotStarted
    _fast_forward_iterator = None

    @staticmethod
    def _base():
        return IterDataPipe

    def __iter__(self):
        return self

    def reset(self):
        """Return to the first sample; called whenever an iterator is made."""


class DFIterDataPipe(IterDataPipe):
    """A stream of data frames."""

    def _is_dfpipe(self):
        return True


class MapDataPipe(_Registered, Dataset[_T_co], metaclass=_DataPipeMeta):
    """Samples by index: a subclass has __getitem__, and __len__ where it is known."""

    functions: ClassVar[dict] = {}
    _deprecated_names = _map_deprecated_functional_names

    @staticmethod
    def _base():
        return MapDataPipe


class _DataPipeSerializationWrapper:
    """A pipe on its way to workers: pickled by itself, with dill where that is installed and pickle refuses."""

    def __init__(self, datapipe):
        self._datapipe = datapipe

    def __getstate__(self):
        try:
            return pickle.dumps(self._datapipe), False
        except Exception:
            try:
                import dill
            except ImportError:
                dill = None
            if dill is None:
                raise
            return dill.dumps(self._datapipe), True

    def __setstate__(self, state):
        value, use_dill = state
        if use_dill:
            import dill

            self._datapipe = dill.loads(value)
        else:
            self._datapipe = pickle.loads(value)

    def __len__(self):
        try:
            return len(self._datapipe)
        except Exception as error:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length") from error


class _IterDataPipeSerializationWrapper(_DataPipeSerializationWrapper, IterDataPipe):
    def __init__(self, datapipe):
        super().__init__(datapipe)
        self._datapipe_iter = None

    def __iter__(self):
        self._datapipe_iter = iter(self._datapipe)
        return self

    def __next__(self):
        if self._datapipe_iter is None:
            raise AssertionError("Iterator has not been initialized; call __iter__() before __next__()")
        return next(self._datapipe_iter)


class _MapDataPipeSerializationWrapper(_DataPipeSerializationWrapper, MapDataPipe):
    def __getitem__(self, idx):
        return self._datapipe[idx]
