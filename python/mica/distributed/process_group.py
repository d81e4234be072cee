"""The group of processes, which is this process."""

import datetime
import enum
import os
import pickle

import mica
from mica.distributed.store import HashStore, Store  # noqa: F401

__all__ = [
    "AllreduceOptions", "Backend", "BackendConfig", "DistBackendError", "DistError", "DistNetworkError",
    "DistStoreError", "ProcessGroup", "ReduceOp", "Work", "destroy_process_group", "get_backend",
    "get_backend_config", "get_default_backend_for_device", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "new_group", "new_subgroups",
    "new_subgroups_by_enumeration", "supports_complex",
]  # fmt: skip

default_pg_timeout = datetime.timedelta(seconds=1800)
default_pg_nccl_timeout = datetime.timedelta(seconds=600)
_pickler, _unpickler = pickle.Pickler, pickle.Unpickler


class DistError(RuntimeError):
    """An error of processes that compute together."""


class DistBackendError(DistError):
    pass


class DistNetworkError(DistError):
    pass


class DistStoreError(DistError):
    pass


class ReduceOp:
    """How values of all processes become one."""

    class RedOpType(enum.IntEnum):
        SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = range(10)

    def __init__(self, op=None):
        self.op = op


for _op in ReduceOp.RedOpType:
    setattr(ReduceOp, _op.name, _op)
reduce_op = ReduceOp


class Backend(str):
    """The library that processes talk through, by name."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, FAKE = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]  # noqa: RUF012
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}  # noqa: RUF012
    backend_capability = {GLOO: ["cpu", "cuda"], NCCL: ["cuda"]}  # noqa: RUF012

    def __new__(cls, name):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name, func, extended_api=False, devices=None):
        raise NotImplementedError("Backend.register_backend: Mica computes in one process")


class BackendConfig:
    def __init__(self, backend):
        self.backend = backend


class AllreduceOptions:
    reduceOp = ReduceOp.SUM


class Work:
    """Something that was done together: it is done."""

    def __init__(self, result=None):
        self._result = result if result is not None else []

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def exception(self):
        return None

    def result(self):
        return self._result

    def synchronize(self):
        """Returns at once: one process has nobody to wait for."""

    def get_future(self):
        from mica.futures import Future

        future = Future()
        future.set_result(self._result)
        return future


class ProcessGroup:
    """A group of processes: this one."""

    WORLD = None

    def __init__(self, *args, backend="gloo", name="0", **options):
        self.group_name, self._backend, self.group_desc = name, backend, options.get("group_desc", "default_pg")
        self.bound_device_id = None

    def rank(self):
        return 0

    def size(self):
        return 1

    def name(self):
        return self._backend

    def allreduce(self, tensors, *args):
        return Work(tensors)

    broadcast = allreduce

    def barrier(self, *args):
        return Work()

    def __repr__(self):
        return f"<ProcessGroup of one process, {self._backend}>"


class _World:
    """The groups that this process has started."""

    default_pg, pg_map, pg_names, group_count = None, {}, {}, 0


_world = _World()
_pg_map = _world.pg_map


class _GroupMeta(type):
    WORLD = property(lambda cls: _world.default_pg)


class group(metaclass=_GroupMeta):
    """The group of all processes: group.WORLD."""


class GroupMember(metaclass=_GroupMeta):
    """The group of all processes, and what stands for a group that this process is not in."""

    NON_GROUP_MEMBER = -100


# ---- starting and asking


def _world_size_of(url, rank, world_size):
    if world_size == -1:
        world_size = int(os.environ.get("WORLD_SIZE", 1)) if url in (None, "env://") else 1
    if rank == -1:
        rank = int(os.environ.get("RANK", 0)) if url in (None, "env://") else 0
    return rank, world_size


def init_process_group(
    backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None,
    device_id=None, _ranks=None,
):  # fmt: skip
    """Start the group of all processes: a world of one."""
    if _world.default_pg is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    rank, world_size = _world_size_of(None if store is not None else init_method, rank, world_size)
    if world_size != 1 or rank != 0:
        raise NotImplementedError(
            f"torch.distributed.init_process_group: a world of {world_size} processes is not in Mica yet: it computes in one "
            "process, which may use all cores (torch.set_num_threads)"
        )
    name = str(backend).lower() if backend is not None else "gloo"
    made = ProcessGroup(backend=name.partition(",")[0].rpartition(":")[2])
    made.bound_device_id = device_id
    _world.default_pg = made
    _world.pg_map[made] = (Backend(made.name()), HashStore() if store is None else store)
    _world.pg_names[made] = made.group_name


def destroy_process_group(group=None):
    """End a group of processes, or all of them."""
    if group is None or group is _world.default_pg:
        _world.default_pg = None
        _world.pg_map.clear()
        _world.pg_names.clear()
    else:
        _world.pg_map.pop(group, None)


def is_initialized():
    """Whether the group of all processes was started."""
    return _world.default_pg is not None


def _get_default_group():
    if not is_initialized():
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world.default_pg


def _group(given):
    default = _get_default_group()
    return default if given is None else given


def _rank_not_in_group(group):
    return group == GroupMember.NON_GROUP_MEMBER


def get_rank(group=None):
    return -1 if _rank_not_in_group(group) else _group(group).rank()


def get_world_size(group=None):
    return -1 if _rank_not_in_group(group) else _group(group).size()


def get_node_local_rank(fallback_rank=None):
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, assuming you are not running in a multi-device context and want the code to run locally instead."
    )


def get_backend(group=None):
    return Backend(_group(group).name())


def get_backend_config(group=None):
    return str(get_backend(group))


def get_default_backend_for_device(device):
    return Backend.default_device_backend_map[mica.device(device).type]


def get_process_group_ranks(group):
    _group(group)
    return [0]


def get_global_rank(group, group_rank):
    return _only_rank(group_rank)


def get_group_rank(group, global_rank):
    return _only_rank(global_rank)


def _only_rank(rank):
    if rank not in (0, None):
        raise ValueError(f"rank {rank} is not part of a group of one process")
    return 0


def is_backend_available(backend):
    return backend.lower() == "gloo"


def is_gloo_available():
    """True: what is done together in a world of one needs no library."""
    return True


def is_nccl_available():
    return False


is_mpi_available = is_ucc_available = is_xccl_available = is_nccl_available


def is_torchelastic_launched():
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def supports_complex(reduceOp):
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG)


def new_group(
    ranks=None,
    timeout=None,
    backend=None,
    pg_options=None,
    use_local_synchronization=False,
    group_desc=None,
    device_id=None,
):
    """A group of some of the processes."""
    default = _get_default_group()
    if ranks is not None and list(ranks) not in ([0], []):
        raise ValueError("the new group's rank should be within the world_size set by init_process_group")
    if ranks is not None and not list(ranks):
        return GroupMember.NON_GROUP_MEMBER
    _world.group_count += 1
    made = ProcessGroup(backend=str(backend or default.name()), name=str(_world.group_count), group_desc=group_desc)
    _world.pg_map[made] = (Backend(made.name()), HashStore())
    return made


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    made = new_group([0])
    return made, [made]


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, pg_options=None, group_desc=None):
    made = [new_group(ranks) for ranks in ranks_per_subgroup_list]
    return made[0], made
