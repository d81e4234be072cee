"""Processes that compute together: docs/distributed.md says how."""

import enum as _enum
import importlib as _importlib
import os as _os

from mica.distributed.distributed_c10d import *  # noqa: F403
from mica.distributed.distributed_c10d import (  # noqa: F401
    GroupMember,
    _all_gather_base,
    _get_default_group,
    _get_process_group_name,
    _make_nccl_premul_sum,
    _rank_not_in_group,
    _reduce_scatter_base,
    default_pg_timeout,
    group,
)
from mica.distributed.rendezvous import register_rendezvous_handler, rendezvous  # noqa: F401
from mica.distributed.store import FileStore, HashStore, PrefixStore, Store, TCPStore  # noqa: F401


class DebugLevel(_enum.IntEnum):
    OFF, INFO, DETAIL = range(3)


_level = DebugLevel.OFF


def is_available():
    """Return True: processes of one host need no other library."""
    return True


def get_debug_level():
    return _level


def set_debug_level(level):
    """Remember the level. Collectives are compared between ranks at every level."""
    global _level
    _level = DebugLevel(level)


def set_debug_level_from_env():
    name = _os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise RuntimeError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO or DETAIL, but it is {name!r}")
    set_debug_level(DebugLevel[name])


if "TORCH_DISTRIBUTED_DEBUG" in _os.environ:
    set_debug_level_from_env()

_MODULES = (
    "algorithms", "autograd", "checkpoint", "constants", "device_mesh", "distributed_c10d", "elastic", "fsdp", "launcher", "nn",
    "optim", "pipelining", "rpc", "tensor", "utils",
)  # fmt: skip


def __getattr__(name):
    if name in ("DeviceMesh", "init_device_mesh"):
        return getattr(_importlib.import_module("mica.distributed.device_mesh"), name)
    if name == "breakpoint":
        return _importlib.import_module("mica.distributed._breakpoint").breakpoint
    if name in ("_broadcast_coalesced", "_verify_params_across_processes"):
        return getattr(_importlib.import_module("mica.distributed.module_states"), name)
    if name == "ProcessGroupGloo":
        return _importlib.import_module("mica.distributed.native").NativeBackend
    if name == "GradBucket":
        return _importlib.import_module("mica.distributed.gradient_buckets").GradBucket
    if name in ("_coalescing_manager", "_CoalescingManager"):
        return getattr(_importlib.import_module("mica.distributed.coalescing"), name)
    if name in _MODULES:
        return _importlib.import_module(f"mica.distributed.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "TORCHELASTIC_ERROR_FILE" in _os.environ:
    _importlib.import_module("mica.distributed.elastic.multiprocessing.errors.error_handler").record_uncaught()
