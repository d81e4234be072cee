"""The extension mica._distributed, loaded when a store or a group of several processes is made."""

import os

import mica
from mica import _distributed as engine
from mica.distributed._errors import DistBackendError, DistNetworkError, DistStoreError

engine.set_plain_type(mica.Tensor)
engine.set_errors(DistBackendError, DistStoreError, DistNetworkError)
# Collectives are shown with the line of the program that called them: the first one outside of the package.
engine.set_own_folder(os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)
