"""What is known of the code that runs on a thread: whether it is compiled, and whether torch has it as one call of a graph.

The engine knows by itself whether it puts kernels off, and a capture is known by its thread. This module knows the rest:
functions that a backend runs as they are, parts that are not compiled, and functions that torch does not look into.
"""

import sys
import threading
import weakref

from mica import _C


class _Thread(threading.local):
    compiled = False  # whether a compiled function runs
    left_out = None  # True in a part that is not compiled; the code of a function that alone is not compiled


_thread = _Thread()
_opaque = {}  # of functions that are one call of torch's graphs: id of the code -> a weak reference to it
_entries = set()  # the code of functions of Mica's own that call captured functions


def is_compiled(frame, is_capturing):
    """Whether the code of a frame is compiled. `is_capturing` says whether a graph is made on this thread."""
    left_out, compiled = _thread.left_out, _C._is_recording()
    if left_out is not True:
        compiled = (compiled or is_capturing or _thread.compiled) and left_out is not frame.f_code
    return compiled and not is_opaque(frame)


class Within:
    """A block of which it is said whether it is compiled, and what of it is not."""

    def __init__(self, compiled=True, left_out=None):
        self._wanted = compiled, left_out

    def __enter__(self):
        self._before = _thread.compiled, _thread.left_out
        _thread.compiled, _thread.left_out = self._wanted

    def __exit__(self, *exception):
        _thread.compiled, _thread.left_out = self._before


def call(function, args, kwargs, compiled=True, left_out=None):
    """Call a function in such a block."""
    with Within(compiled, left_out):
        return function(*args, **kwargs)


def is_thread_compiled():
    """Whether a function runs that a backend runs as it is, or that is captured."""
    return _thread.compiled


def code_of(function):
    """The code of a function, of a method or of a module's forward; None for others."""
    return getattr(function, "__code__", None) or getattr(getattr(function, "forward", None), "__code__", None)


# ---- functions that torch does not look into


def mark_opaque(function):
    """Note that torch's graphs have a function as one call. Breaks within it end no graph and are no error."""
    if (code := code_of(function)) is not None:
        key = id(code)
        _opaque[key] = weakref.ref(code, lambda _: _opaque.pop(key, None))


def unmark_opaque(function):
    """Forget what mark_opaque has noted. Returns whether there was such a note."""
    return _opaque.pop(id(code_of(function)), None) is not None


def is_opaque(frame=None):
    """Whether a frame belongs to a function that torch does not look into, or was called by one."""
    if not _opaque:
        return False
    frame = frame or sys._getframe(1)
    while frame is not None and frame.f_code not in _entries:
        if id(frame.f_code) in _opaque:
            return True
        frame = frame.f_back
    return False


def add_entry(function):
    """Name a function of Mica's own that calls captured ones. What calls it does not belong to a captured function."""
    _entries.add(function.__code__)


# ---- wrappers


def mark_wrapper(wrapper, inner):
    """Note which function a wrapper of torch.compile or disable calls."""
    wrapper._torchdynamo_orig_callable = inner
    wrapper._torchdynamo_wrapper_id = id(wrapper)
    return wrapper


def innermost_fn(fn):
    """The function within wrappers of torch.compile and disable.

    What functools.wraps has copied from a wrapper does not count, and neither do attributes of a method's function.
    """
    while getattr(fn, "_torchdynamo_wrapper_id", None) == id(fn):
        fn = fn._torchdynamo_orig_callable
    return fn


def call_of(cls):
    """The function that runs when an object of a class is called, or None."""
    return next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)
