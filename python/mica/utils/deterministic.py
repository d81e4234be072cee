"""What deterministic algorithms ask of memory without a value."""

import sys
import types


class _Deterministic(types.ModuleType):
    """The module, with a switch."""

    _fills = True

    @property
    def fill_uninitialized_memory(self):
        """Whether torch fills new memory under use_deterministic_algorithms. Mica's empty() never does."""
        return self._fills

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode):
        if not isinstance(mode, bool):
            raise RuntimeError(f"fill_uninitialized_memory expects a bool, but got {type(mode).__name__}")
        self._fills = mode


sys.modules[__name__].__class__ = _Deterministic
