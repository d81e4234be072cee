"""The groups that this process knows, and what can be asked about them."""

import datetime
import os

import mica
from mica.distributed.options import ReduceOp
from mica.distributed.process_group import Backend

__all__ = [
    "get_backend", "get_backend_config", "get_default_backend_for_device", "get_global_rank",
    "get_group_rank", "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "supports_complex",
]  # fmt: skip

default_pg_timeout = datetime.timedelta(seconds=1800)
default_pg_nccl_timeout = datetime.timedelta(seconds=600)


class _World:
    """The groups of this process and what is known of them."""

    def __init__(self):
        self.default_pg, self.group_count = None, 0
        self.pg_map, self.pg_names, self.pg_group_ranks, self.pg_backend_config = {}, {}, {}, {}
        self.pg_to_tag, self.tags_to_pg, self.pg_coalesce_state = {}, {}, {}
        self.timeout, self.engine, self.watching_exit = default_pg_timeout, None, False

    def clear(self):
        for each in (
            self.pg_map, self.pg_names, self.pg_group_ranks, self.pg_backend_config, self.pg_to_tag, self.tags_to_pg,
            self.pg_coalesce_state,
        ):  # fmt: skip
            each.clear()
        self.default_pg, self.engine, self.group_count = None, None, 0


_world = _World()
_pg_map, _pg_names, _pg_group_ranks = _world.pg_map, _world.pg_names, _world.pg_group_ranks


class _WorldMeta(type):
    WORLD = property(lambda cls: _world.default_pg)


class group(metaclass=_WorldMeta):
    """The group of all processes: group.WORLD."""


class GroupMember(metaclass=_WorldMeta):
    """The group of all processes, and what stands for a group that this process is not in."""

    NON_GROUP_MEMBER = -100


def _check_timeout(timeout):
    if not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    return timeout


def is_initialized():
    """Whether the group of all processes was started."""
    return _world.default_pg is not None


def _get_default_group():
    if not is_initialized():
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world.default_pg


def _get_default_store():
    return _world.pg_map[_get_default_group()][1]


def _group(given):
    default = _get_default_group()
    return default if given is None or given is group.WORLD else given


_group_or_default_group = _group


def _rank_not_in_group(group):
    return isinstance(group, int) and group == GroupMember.NON_GROUP_MEMBER


def get_rank(group=None):
    """This process's rank in a group, -1 if it is not in it."""
    return -1 if _rank_not_in_group(group) else _group(group).rank()


def get_world_size(group=None):
    """The number of processes in a group, -1 if this process is not in it."""
    return -1 if _rank_not_in_group(group) else _group(group).size()


def get_node_local_rank(fallback_rank=None):
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, assuming you are not running in a multi-device context and want the code to run locally instead."
    )


def _known(group):
    if _rank_not_in_group(group) or group not in _world.pg_map:
        raise ValueError("Invalid process group specified")
    return group


def get_backend(group=None):
    return Backend(_world.pg_map[_known(_group(group))][0])


def get_backend_config(group=None):
    return _world.pg_backend_config[_known(_group(group))]


def get_default_backend_for_device(device):
    kind = device.type if isinstance(device, mica.device) else str(device).partition(":")[0]
    found = Backend.default_device_backend_map.get(kind)
    if found is None:
        raise ValueError(f"Default backend not registered for device : {device}")
    return found


def get_pg_count():
    """How many groups this process knows of."""
    return _world.group_count


def _ranks_of(group):
    found = _world.pg_group_ranks.get(group)
    if found is None:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    return found


def get_process_group_ranks(group):
    """The ranks in the world of a group's processes."""
    return list(_ranks_of(_group(group)))


def get_global_rank(group, group_rank):
    """The rank in the world of a group's rank."""
    if group is _world.default_pg or group is None:
        return group_rank
    for each, index in _ranks_of(group).items():
        if index == group_rank:
            return each
    raise ValueError(f"Group rank {group_rank} is not part of group {group}")


def get_group_rank(group, global_rank):
    """The rank in a group of a rank of the world."""
    if group is _world.default_pg or group is None:
        return global_rank
    found = _ranks_of(group).get(global_rank)
    if found is None:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return found


def is_backend_available(backend):
    if backend.lower() == "fake" or backend.lower() in Backend._plugins:
        return True
    available = globals().get(f"is_{backend.lower()}_available")
    return bool(available and available())


def is_gloo_available():
    """True: processes of one host need no library."""
    return True


def is_nccl_available():
    """Whether there is a GPU, and the library NCCL."""
    from mica import cuda
    from mica.cuda import nccl

    return cuda.is_available() and nccl._library() is not None


def is_mpi_available():
    """Whether there is an MPI library, and this process may belong to its world.

    Programs ask before they choose a backend. Processes that another launcher has started, as torchrun does, are unknown
    to MPI: there each would be alone.
    """
    from mica.distributed.mpi_library import library, started_by_mpi

    alone = int(os.environ.get("WORLD_SIZE") or 1) == 1
    return (alone or started_by_mpi()) and library() is not None


def is_ucc_available():
    return False


is_xccl_available = is_ucc_available


def is_torchelastic_launched():
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def supports_complex(reduceOp):
    return reduceOp not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def _resolve_process_group(name):
    """The group of a name."""
    for each, known in _world.pg_names.items():
        if known == name:
            return each
    raise RuntimeError(f"Could not resolve the process group registered under the name {name}")


def _get_process_group_name(group):
    return _world.pg_names.get(group, "None")


def _get_group_size(group):
    return get_world_size(group)


def _find_pg_by_ranks_and_tag(tag, ranks):
    for each in _world.tags_to_pg.get(tag if not tag or tag.startswith(("ptd:", "user:")) else f"user:{tag}", []):
        if get_process_group_ranks(each) == list(ranks):
            return each
    return None


def _set_pg_timeout(timeout, group=None):
    _check_timeout(timeout)
    _group(group).set_timeout(timeout)
