"""Importing functorch before torch makes both Mica, as importing torch does; a functorch of torch's own is passed over."""

import importlib
import sys

try:
    from mica._as_torch import alias as _torch_alias
except ImportError as error:
    raise ImportError(
        "functorch means Mica here, and this Python has no package mica (`mica alias off` undoes it)"
    ) from error

del sys.modules[__name__]
_torch_alias.install()
importlib.import_module(__name__)
