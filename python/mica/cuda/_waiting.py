"""Warnings and errors about calls that wait for the GPU."""

from mica import _C

_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode):
    """Let calls that wait for the GPU be: "default" or 0, warn: "warn" or 1, or fail: "error" or 2."""
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError("invalid value of debug_mode, expected one of 0, 1, 2")
    _C._backend_query("cuda", "set_waiting", str(int(debug_mode)))


def get_sync_debug_mode():
    """The mode as a number."""
    return int(_C._backend_query("cuda", "waiting", ""))
