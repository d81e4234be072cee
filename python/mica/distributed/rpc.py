"""Calls of functions in other processes: there are none, and this module says so to who asks."""

__all__ = ["is_available"]


def is_available():
    """False: Mica computes in one process."""
    return False
