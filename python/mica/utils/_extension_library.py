"""Libraries that bring operators."""

import ctypes
import os

_LIBTORCH = (b"libtorch.so", b"libtorch_cpu.so", b"libtorch_python.so", b"libc10.so")


def is_for_libtorch(path):
    """Whether a library names libtorch's among those that it needs."""
    with open(path, "rb") as file:
        data = file.read()
    return any(name in data for name in _LIBTORCH)


def load_library(path):
    """Load a shared library into the process; one that is built for libtorch is refused, unless Mica has its operators."""
    path = os.fspath(path)
    if not os.path.exists(path):
        raise OSError(f"Could not load this library: {path}: there is no such file")
    from mica._operators import libraries as _operator_libraries

    if _operator_libraries.load(path):
        return
    if is_for_libtorch(path):
        raise OSError(
            f"Could not load this library: {path}: it is built for libtorch, whose classes lie differently in memory than "
            "Mica's. Its source must be compiled against Mica's headers"
        )
    try:
        ctypes.CDLL(path)
    except OSError as error:
        raise OSError(f"Could not load this library: {path}: {error}") from error
