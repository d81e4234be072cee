"""Starting and ending the world, and making groups of processes."""

import contextlib
import os
import sys
import warnings

import mica
from mica.distributed.process_group import Backend, BackendConfig, LocalBackend, ProcessGroup
from mica.distributed.rendezvous import rendezvous
from mica.distributed.schedulers import told_by_scheduler
from mica.distributed.store import HashStore, PrefixStore
from mica.distributed.world import (
    GroupMember,
    _check_timeout,
    _group,
    _world,
    default_pg_nccl_timeout,
    default_pg_timeout,
    is_nccl_available,
)

__all__ = ["destroy_process_group", "init_process_group"]


def _default_backend(device_id):
    if device_id is not None:
        return Backend.default_device_backend_map.get(mica.device(device_id).type, Backend.GLOO)
    return Backend.UNDEFINED


def _local_rank():
    """Rank and size as Slurm or mpirun say them, where no launcher has said it in torch's own variables."""
    told = {**told_by_scheduler(), **os.environ}
    return (int(told["RANK"]), int(told["WORLD_SIZE"])) if "RANK" in told and "WORLD_SIZE" in told else None


def init_process_group(
    backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None,
    device_id=None, _ranks=None,
):  # fmt: skip
    """Start the group of all processes. Every process calls it, with the same arguments but for `rank`.

    Args:
        backend: "gloo" for the CPU, "nccl" for GPUs, "mpi", or "cpu:gloo,cuda:nccl"; chosen by the device if not given
        init_method: where processes meet: "env://" (the default, with the variables that torchrun sets),
            "tcp://host:port" or "file:///path"
        timeout: how long a collective may take, as a datetime.timedelta
        world_size, rank: how many processes there are, and which this is; env:// has them
        store: a store to meet through, in the place of init_method
        device_id: the device that this process computes on

    Example, under `mica launch --nproc-per-node 2 program.py`::

        torch.distributed.init_process_group("gloo")
        x = torch.ones(3)
        torch.distributed.all_reduce(x)  # 2 everywhere
    """
    if _world.default_pg is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if isinstance(device_id, int):
        raise ValueError(f"init_process_group expects device_id to be a torch.device, not {device_id!r}")
    name = str(backend).lower() if backend is not None else _default_backend(device_id)
    config = BackendConfig(name)
    if timeout is None:
        timeout = default_pg_nccl_timeout if name == Backend.NCCL else default_pg_timeout
    _check_timeout(timeout)
    if store is not None:
        if world_size <= 0:
            raise AssertionError("world_size must be positive if using store")
        if rank < 0:
            raise AssertionError("rank must be non-negative if using store")
    elif init_method is None and Backend.MPI in config.get_device_backend_map().values():
        from mica.distributed import mpi

        if world_size != -1 or rank != -1:
            warnings.warn(
                f"For MPI backend, world_size ({world_size}) and rank ({rank}) are ignored since they are assigned by the MPI runtime.",
                stacklevel=2,
            )
        rank, world_size, store = mpi.mpi().rank, mpi.mpi().size, mpi.store()
        store.set_timeout(timeout)
    elif name == "fake" and init_method is None and world_size > 0 and rank >= 0:
        store = HashStore()  # nobody else is there
    elif _alone(init_method, rank, world_size):
        rank, world_size, store = 0, 1, HashStore()
    else:
        if rank == -1 and world_size == -1 and init_method in (None, "env://") and "RANK" not in os.environ:
            rank, world_size = _local_rank() or (rank, world_size)
        store, rank, world_size = next(rendezvous(init_method or "env://", rank, world_size, timeout=timeout))
        store.set_timeout(timeout)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in a world of {world_size} processes")
    _world.timeout = timeout
    made = _make_group(
        group_name or "0", "default_pg", list(range(world_size)), rank, config, store, timeout,
        pg_options,
    )  # fmt: skip
    made.bound_device_id = device_id
    _world.default_pg = made
    _world.group_count = 1
    if not _world.watching_exit:
        import atexit

        _world.watching_exit = True
        atexit.register(_at_exit)


def _alone(init_method, rank, world_size):
    """A world of one needs no address to meet at."""
    if init_method not in (None, "env://"):
        return False
    if world_size == -1:
        known = _local_rank()
        return (
            known[1] == 1 if known and rank == -1 else "WORLD_SIZE" not in os.environ and rank in (-1, 0) and not known
        )
    return world_size == 1


def _at_exit():
    """Tell other ranks goodbye, so that they do not take this process for one that has died."""
    for each in list(_world.pg_map):
        with contextlib.suppress(Exception):  # the process ends, and there is nobody left to tell
            each.shutdown()
    if mpi := sys.modules.get("mica.distributed.mpi"):
        mpi.finish()


def _make_group(name, text, ranks, rank, config, store, timeout, options=None):
    """The group of some ranks, of which this process is one."""
    own = PrefixStore(f"group{name}", store)
    made = ProcessGroup(own, rank, len(ranks))
    backends = {}
    for device, backend in config.get_device_backend_map().items():
        if backend not in backends:
            backends[backend] = _make_backend(backend, device, name, ranks, rank, own, timeout, options)
        found = backends[backend]
        if isinstance(found, ProcessGroup):
            made = found
            break
        if found is not None:
            made._register_backend(device, None, found)
    made._store, made.group_name, made.group_desc = own, name, text
    _world.pg_map[made] = (config_name(config), store)
    _world.pg_names[made] = name
    _world.pg_group_ranks[made] = {each: index for index, each in enumerate(ranks)}
    _world.pg_backend_config[made] = repr(config)
    tag = f"ptd:{name}"
    _world.pg_to_tag[made] = tag
    _world.tags_to_pg.setdefault("", []).append(made)
    _world.tags_to_pg.setdefault(tag, []).append(made)
    return made


def config_name(config):
    names = list(dict.fromkeys(config.get_device_backend_map().values()))
    return names[0] if len(names) == 1 else Backend(repr(config))


class _BackendOptions:
    """The options that a backend of another package is made with (extended_api)."""


def _make_backend(backend, device, name, ranks, rank, store, timeout, options):
    own = PrefixStore(f"{device}-{backend}", store)
    size = len(ranks)
    if backend in Backend._plugins:
        plugin = Backend._plugins[backend]
        if not plugin.extended_api:
            return plugin.creator_fn(own, rank, size, timeout)
        given = _BackendOptions()
        given.store, given.group_rank, given.group_size, given.timeout = own, rank, size, timeout
        given.group_id, given.global_ranks_in_group = name, list(ranks)
        return plugin.creator_fn(given, options)
    if backend == Backend.FAKE:
        from mica.distributed.fake import FakeBackend

        return FakeBackend(rank, size)
    if size == 1:
        return LocalBackend(backend)
    if backend == Backend.GLOO:
        from mica.distributed.meeting import meet
        from mica.distributed.native import NativeBackend

        engine = meet(own, rank, size, timeout, name, list(ranks), _world.engine)
        if _world.engine is None:
            _world.engine = engine
        return NativeBackend(engine, rank, size, timeout, backend, name, ranks)
    if backend == Backend.MPI:
        from mica.distributed import mpi

        return mpi.make(own, name, ranks, rank, timeout)
    if device == "cuda" and backend == Backend.NCCL:
        return _nccl(own, rank, size, timeout)
    raise RuntimeError(
        f"the backend {backend!r} is not in this build of Mica: 'gloo' serves the CPU, and CUDA tensors through its memory"
    )


def _nccl(store, rank, size, timeout):
    if is_nccl_available():
        from mica.distributed.nccl import NcclBackend

        return NcclBackend(store, rank, size, timeout)
    from mica.distributed.missing import MissingBackend

    return MissingBackend(Backend.NCCL, "it needs a GPU and NCCL (pip install nvidia-nccl-cu13); 'gloo' needs neither")


def destroy_process_group(group=None):
    """End a group of processes, or all of them."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    chosen = _world.default_pg if group is None else group
    if chosen is None:
        raise AssertionError("Process group cannot be None")
    if chosen not in _world.pg_map:
        raise ValueError("Invalid process group specified or has been destroyed.")
    if chosen is _world.default_pg:
        for each in reversed(list(_world.pg_map)):
            each.shutdown()
        _world.clear()
        return
    chosen.shutdown()
    for table in (_world.pg_map, _world.pg_names, _world.pg_group_ranks, _world.pg_backend_config, _world.pg_to_tag):
        table.pop(chosen, None)
    for groups in _world.tags_to_pg.values():
        if chosen in groups:
            groups.remove(chosen)


def _abort_process_group(group=None):
    for each in [_group(group)] if group is not None else list(_world.pg_map):
        each.abort()
