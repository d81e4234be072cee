"""Importing torch makes it Mica: in processes that a program under `mica run` starts, and where `mica alias on` put this."""

import sys

try:
    from mica._as_torch import alias as _torch_alias
except ImportError as error:
    raise ImportError(
        "torch means Mica here, and this Python has no package mica (`mica alias off` undoes it)"
    ) from error

del sys.modules[__name__]
_torch_alias.install()
