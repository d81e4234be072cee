"""Calls of functions in other processes. There are none, and this module says so to programs that ask."""

__all__ = ["is_available"]


def is_available():
    """False: Mica computes in one process."""
    return False
