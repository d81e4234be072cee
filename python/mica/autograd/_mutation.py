"""allow_mutation_on_saved_tensors: what backward needs is copied when a program is about to change it."""

import contextlib
import threading
import weakref
from collections import defaultdict

from mica import _C
from mica.utils._python_dispatch import TorchDispatchMode

_OUTSIDE = "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was originally recorded."
_active = threading.local()


class _Handle:
    """Stands in the graph for a saved tensor. When the graph frees it, the context frees the tensor."""

    __slots__ = ("__weakref__", "version")


def _tensor_id(tensor):
    return (id(tensor), tensor.data_ptr(), tensor._version)


def _memory_id(tensor):
    return (tensor.untyped_storage().data_ptr(), tensor._version)


class _Context:
    """Keeps the tensors that were saved within the block: the tensor itself until it is changed, and then a copy."""

    def __init__(self):
        self.cloned = weakref.WeakKeyDictionary()
        self.original = weakref.WeakKeyDictionary()
        self.tid_to_weakhandle = weakref.WeakValueDictionary()
        self.sid_to_tid = defaultdict(set)
        self.is_open = False

    def clear(self):
        for each in (self.cloned, self.original, self.tid_to_weakhandle, self.sid_to_tid):
            each.clear()

    def pack(self, tensor):
        number = _tensor_id(tensor)
        handle = self.tid_to_weakhandle.get(number)
        if handle is None:
            handle = _Handle()
            handle.version = tensor._version
            self.tid_to_weakhandle[number] = handle
            self.original[handle] = tensor
            self.sid_to_tid[_memory_id(tensor)].add(number)
        return handle

    def unpack(self, handle):
        if not self.is_open or (handle not in self.cloned and handle not in self.original):
            raise AssertionError(_OUTSIDE)
        if handle in self.cloned:
            return self.cloned[handle]
        tensor = self.original[handle]
        if tensor._version != handle.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation that no "
                f"mode sees, such as a step of an optimizer: it is at version {tensor._version}; expected version "
                f"{handle.version} instead. Change it after the backward pass"
            )
        return tensor

    def about_to_change(self, tensor):
        """Copy what was saved of the tensor's memory."""
        for number in self.sid_to_tid.pop(_memory_id(tensor), ()):
            handle = self.tid_to_weakhandle.get(number)
            if handle is not None and handle not in self.cloned:
                self.cloned[handle] = self.original.pop(handle).clone()


class _CopyBeforeChange(TorchDispatchMode):
    def __init__(self, context):
        super().__init__()
        self._context = context

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = kwargs.get(argument.name) if argument.kwarg_only else args[i] if i < len(args) else None
            for each in given if isinstance(given, (list, tuple)) else (given,):
                if isinstance(each, _C.TensorBase):
                    self._context.about_to_change(each)
        return func(*args, **kwargs)


@contextlib.contextmanager
def allowed():
    """The block of allow_mutation_on_saved_tensors."""
    if getattr(_active, "context", None) is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _active.context = _Context()
    try:
        _C._push_saved_tensor_hooks(context.pack, context.unpack)
        try:
            with _CopyBeforeChange(context):
                context.is_open = True
                yield context
        finally:
            _C._pop_saved_tensor_hooks()
    finally:
        context.is_open = False
        context.clear()
        _active.context = None
