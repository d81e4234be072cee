"""How deterministic algorithms fill memory without a value."""

import sys
import types

from mica import _C


class _Deterministic(types.ModuleType):
    """The module, with a switch."""

    @property
    def fill_uninitialized_memory(self):
        """Whether new memory is filled, with NaN or the largest integer, under use_deterministic_algorithms."""
        from mica._functions import settings

        return settings._fill_uninitialized_memory

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode):
        if not isinstance(mode, bool):
            raise RuntimeError(f"expected a bool, but got {type(mode).__name__}: fill_uninitialized_memory is a switch")
        from mica._functions import settings

        settings._fill_uninitialized_memory = mode
        _C._set_fill_uninitialized(settings._deterministic and mode)


sys.modules[__name__].__class__ = _Deterministic
