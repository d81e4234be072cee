"""Python's multiprocessing, with tensors that processes share: one that is sent through a queue or a pipe is not copied."""

import multiprocessing
from multiprocessing import *  # noqa: F403

from mica.multiprocessing import reductions
from mica.multiprocessing.reductions import init_reductions
from mica.multiprocessing.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "init_reductions",
    "reductions",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]


def get_all_sharing_strategies():
    """How memory can be shared: by file descriptors."""
    return {"file_descriptor"}


def get_sharing_strategy():
    return "file_descriptor"


def set_sharing_strategy(new_strategy):
    """Accept a strategy and keep to file descriptors, which leave no files behind."""
    if new_strategy not in ("file_descriptor", "file_system"):
        raise AssertionError(f"{new_strategy!r} is not a sharing strategy")


init_reductions()
