"""Small things that code about dispatch modes shares."""

from mica.utils._python_dispatch import no_dispatch

__all__ = ["all_same_mode", "no_dispatch"]


def all_same_mode(modes):
    """Whether all of the modes are one."""
    return all(mode is modes[0] for mode in modes)
