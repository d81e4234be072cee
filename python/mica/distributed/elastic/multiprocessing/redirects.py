"""Lets the output of this process, down to its file descriptors, go to a file for a while."""

import ctypes
import os
import sys
from contextlib import contextmanager
from functools import partial


def _flush(stream):
    stream.flush()
    ctypes.CDLL(None).fflush(None)  # writes what C still buffers, for all its streams


@contextmanager
def redirect(std, to_file):
    """Let "stdout" or "stderr" be a file within the context; a file that is there is emptied."""
    if std not in ("stdout", "stderr"):
        raise ValueError(f"unknown standard stream <{std}>, must be one of { {'stdout', 'stderr'} }")
    stream = getattr(sys, std)
    descriptor = stream.fileno()
    kept = os.dup(descriptor)
    try:
        with open(to_file, "w+b") as target:
            _flush(stream)
            os.dup2(target.fileno(), descriptor)
            try:
                yield
            finally:
                _flush(stream)
                os.dup2(kept, descriptor)
    finally:
        os.close(kept)


redirect_stdout = partial(redirect, "stdout")
redirect_stderr = partial(redirect, "stderr")
