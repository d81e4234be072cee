"""Processes that compute together. Mica computes in one: every collective works for a world of that size."""

import importlib as _importlib
import os as _os

from mica.distributed.distributed_c10d import *  # noqa: F403
from mica.distributed.distributed_c10d import (  # noqa: F401
    GroupMember,
    _get_default_group,
    _rank_not_in_group,
    group,
)
from mica.distributed.store import FileStore, HashStore, PrefixStore, Store, TCPStore  # noqa: F401

DebugLevel = type("DebugLevel", (), {"OFF": 0, "INFO": 1, "DETAIL": 2})


def is_available():
    """True: a world of one process."""
    return True


def get_debug_level():
    return DebugLevel.OFF


def set_debug_level(level):
    """Does nothing: Mica logs no collectives."""


set_debug_level_from_env = set_debug_level


_LAUNCHED = ("checkpoint", "elastic", "launcher")


def __getattr__(name):
    if name in ("DeviceMesh", "init_device_mesh"):
        return getattr(_importlib.import_module("mica.distributed.device_mesh"), name)
    if name == "GradBucket":
        return _importlib.import_module("mica.distributed.gradient_buckets").GradBucket
    if name in ("constants", "device_mesh", "nn", "utils", "optim", "algorithms", "rpc", *_LAUNCHED):
        return _importlib.import_module(f"mica.distributed.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "TORCHELASTIC_ERROR_FILE" in _os.environ:
    _importlib.import_module("mica.distributed.elastic.multiprocessing.errors.error_handler").record_uncaught()
