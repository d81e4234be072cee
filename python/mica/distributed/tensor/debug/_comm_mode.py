"""Counting the collectives that a block calls."""

from collections import Counter

import mica
from mica.distributed._watched import watchers

__all__ = ["CommDebugMode"]


class CommDebugMode:
    """Counts the collectives of a block, by torch's operators: those of spread tensors are functional ones.

    Tables by module, and files of them, are not there.
    """

    def __init__(self):
        self._counts = Counter()

    def __enter__(self):
        self._counts = Counter()
        self._watcher = lambda name: self._counts.update([name])
        watchers.append(self._watcher)
        return self

    def __exit__(self, *error):
        watchers.remove(self._watcher)

    @property
    def comm_counts(self):
        """How often each operator was called."""
        return self.get_comm_counts()

    def get_comm_counts(self):
        """How often each operator was called."""
        found = Counter()
        for name, count in self._counts.items():
            namespace, _, operator = name.partition("::")
            found[getattr(getattr(mica.ops, namespace), operator)] = count
        return found

    def get_total_counts(self):
        """How many collectives were called."""
        return self._counts.total()

    def __repr__(self):
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"
