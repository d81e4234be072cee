"""How batches are made: in this process, or by workers."""

import importlib.util

from mica._utils import ExceptionWrapper
from mica.utils.data._utils import collate, fetch, pin_memory, worker

HAS_NUMPY = importlib.util.find_spec("numpy") is not None
MP_STATUS_CHECK_INTERVAL = 5.0  # seconds after which packages with workers of their own ask whether these are alive

__all__ = ["ExceptionWrapper", "collate", "fetch", "pin_memory", "worker"]
