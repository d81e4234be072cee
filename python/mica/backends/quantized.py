"""Engines for quantized layers. Mica has one, its own: the choice is kept, and changes nothing."""

import platform
import sys
import types

supported_engines = ["qnnpack", "onednn", "x86", "fbgemm"]
_engine = "x86" if platform.machine() in ("x86_64", "AMD64") else "qnnpack"


class _Engines(types.ModuleType):
    @property
    def engine(self):
        """The name of the engine."""
        return _engine

    @engine.setter
    def engine(self, name):
        global _engine
        if name not in (*supported_engines, "none", "", None):
            raise RuntimeError(f"{name} is not a valid value for quantized engine")
        _engine = name or "none"


sys.modules[__name__].__class__ = _Engines
