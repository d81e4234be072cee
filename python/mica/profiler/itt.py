"""Ranges for Intel's profilers. Mica does not use Intel's library, and says what torch says without it."""

import contextlib

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available():
    """Whether ranges reach Intel's profilers: they do not."""
    return False


def _fail():
    raise RuntimeError("ITT functions not installed. Are you sure you have a ITT build?")


def range_push(msg):
    """Begin a range."""
    _fail()


def range_pop():
    """End the current range."""
    _fail()


def mark(msg):
    """Mark a moment."""
    _fail()


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """A range in a with block."""
    range_push(msg.format(*args, **kwargs))
    yield
