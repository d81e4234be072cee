"""Ranges for NVIDIA's profilers, where the NVTX library is there; without it they are only counted."""

import contextlib
import ctypes

from mica import _C

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


_recorded = []  # for each open range, whether torch.profiler records it too


def range_push(msg):
    """Begin a range inside the current one; its depth."""
    global _depth
    if library := _load():
        library.nvtxRangePushA(str(msg).encode())
    _recorded.append(_C._profiler_recording())
    if _recorded[-1]:
        _C._profiler_begin(str(msg))
    _depth += 1
    return _depth - 1


def range_pop():
    """End the current range; its depth."""
    global _depth
    if library := _load():
        library.nvtxRangePop()
    if _recorded and _recorded.pop() and _C._profiler_recording():
        _C._profiler_end()
    _depth = max(_depth - 1, 0)
    return _depth


def range_start(msg):
    """Begin a range that may end anywhere; what range_end takes."""
    if library := _load():
        library.nvtxRangeStartA.restype = ctypes.c_uint64
        return library.nvtxRangeStartA(str(msg).encode())
    return 0


def range_end(range_id):
    """End a range that range_start has begun."""
    if library := _load():
        library.nvtxRangeEnd(ctypes.c_uint64(range_id))


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
