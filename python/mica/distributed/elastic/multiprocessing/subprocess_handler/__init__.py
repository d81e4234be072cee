"""A process of a command line, and how it is ended."""

from mica.distributed.elastic.multiprocessing.subprocess_handler.handlers import get_subprocess_handler
from mica.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

__all__ = ["SubprocessHandler", "get_subprocess_handler"]
