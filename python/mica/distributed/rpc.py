"""Calls of functions in other processes, which Mica does not have. This module tells so to programs that ask."""

__all__ = ["is_available"]


def is_available():
    """Return False: Mica does not call functions in other processes."""
    return False
