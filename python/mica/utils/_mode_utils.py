"""Small things that code about dispatch modes shares."""

from mica._subclasses.recorded import no_dispatch

__all__ = ["all_same_mode", "no_dispatch"]


def all_same_mode(modes):
    """Whether all of the modes are one."""
    return all(mode is modes[0] for mode in modes)
