"""Lengths of streams that are known from what they read."""

from collections.abc import Sized


def length_of(pipe, *sources):
    """The lengths of a pipe's sources; TypeError where one has none."""
    if not all(isinstance(source, Sized) for source in sources):
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length")
    return [len(source) for source in sources]
