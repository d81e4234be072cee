"""The switch of NVIDIA's profilers: what they record when they were told to wait for it."""

import contextlib

from mica.cuda._runtime import check_error, cudart

__all__ = ["profile", "start", "stop"]


def start():
    """Let a profiler that watches this process begin to record."""
    return check_error(cudart().cudaProfilerStart())


def stop():
    """Let NVIDIA's profiler stop recording."""
    return check_error(cudart().cudaProfilerStop())


@contextlib.contextmanager
def profile():
    """Record a with block."""
    try:
        start()
        yield
    finally:
        stop()
