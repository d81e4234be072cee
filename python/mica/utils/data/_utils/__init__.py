"""How batches are made: in this process, or by workers."""

from mica._utils import ExceptionWrapper
from mica.utils.data._utils import collate, fetch, pin_memory, worker

__all__ = ["ExceptionWrapper", "collate", "fetch", "pin_memory", "worker"]
