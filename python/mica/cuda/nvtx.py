"""Ranges for NVIDIA's profilers, where the NVTX library is there; without it they are only counted."""

import contextlib
import ctypes

_depth = 0
_library = None


def _load():
    global _library
    if _library is None:
        _library = False
        for name in ("libnvToolsExt.so.1", "libnvtx3interop.so.1", "libnvToolsExt.so"):
            with contextlib.suppress(OSError):
                _library = ctypes.CDLL(name)
                break
    return _library


def range_push(msg):
    """Begin a range inside the current one; its depth."""
    global _depth
    if library := _load():
        library.nvtxRangePushA(str(msg).encode())
    _depth += 1
    return _depth - 1


def range_pop():
    """End the current range; its depth."""
    global _depth
    if library := _load():
        library.nvtxRangePop()
    _depth = max(_depth - 1, 0)
    return _depth


def mark(msg):
    """A point in time."""
    if library := _load():
        library.nvtxMarkA(str(msg).encode())


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """A range around a with block."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
