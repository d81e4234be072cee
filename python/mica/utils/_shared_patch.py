"""Replaces names of a module while at least one thread is in a block."""

import os
import threading

__all__ = ["SharedPatch"]


class SharedPatch:
    """Blocks of all threads: the first that is entered calls `patch`, the last that is left calls `restore`."""

    def __init__(self, patch, restore):
        self._patch, self._restore, self._depth, self._lock = patch, restore, 0, threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._patch()

    def __exit__(self, *exception):
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._restore()
