"""On the path of processes that a program under `mica run` spawns: importing torch makes it Mica there too."""

import sys

from mica import _torch_alias

del sys.modules[__name__]
_torch_alias.install()
