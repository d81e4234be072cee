"""Groups of processes and what they do together, by the module that torch has it in."""

from mica.distributed import collectives as _collectives
from mica.distributed import groups as _groups
from mica.distributed import messages as _messages
from mica.distributed import object_collectives as _objects
from mica.distributed import options as _options
from mica.distributed import process_group as _process_group
from mica.distributed import subgroups as _subgroups
from mica.distributed import world as _asked
from mica.distributed.collectives import *  # noqa: F403
from mica.distributed.collectives import _all_gather_base, _reduce_scatter_base  # noqa: F401
from mica.distributed.groups import *  # noqa: F403
from mica.distributed.groups import _abort_process_group  # noqa: F401
from mica.distributed.messages import *  # noqa: F403
from mica.distributed.object_collectives import *  # noqa: F403
from mica.distributed.object_collectives import _object_to_tensor, _tensor_to_object  # noqa: F401
from mica.distributed.options import *  # noqa: F403
from mica.distributed.options import _make_nccl_premul_sum  # noqa: F401
from mica.distributed.process_group import *  # noqa: F403
from mica.distributed.process_group import _pickler, _unpickler  # noqa: F401
from mica.distributed.rendezvous import register_rendezvous_handler, rendezvous  # noqa: F401
from mica.distributed.store import FileStore, HashStore, PrefixStore, Store, TCPStore  # noqa: F401
from mica.distributed.subgroups import *  # noqa: F403
from mica.distributed.world import *  # noqa: F403
from mica.distributed.world import (  # noqa: F401
    GroupMember,
    _find_pg_by_ranks_and_tag,
    _get_default_group,
    _get_default_store,
    _get_group_size,
    _get_process_group_name,
    _group_or_default_group,
    _pg_group_ranks,
    _pg_map,
    _pg_names,
    _rank_not_in_group,
    _resolve_process_group,
    _set_pg_timeout,
    _world,
    default_pg_nccl_timeout,
    default_pg_timeout,
    group,
)
from mica.distributed.world import (
    get_global_rank as _get_global_rank,  # noqa: F401 - its older name
)

__all__ = [
    *_process_group.__all__, *_groups.__all__, *_subgroups.__all__, *_asked.__all__, *_collectives.__all__, *_messages.__all__, *_objects.__all__,
    *_options.__all__,
]  # fmt: skip


def _get_pg_default_device(group=None):  # noqa: F811
    """The device of tensors that travel for objects."""
    import mica

    return mica.device("cpu")


_get_object_coll_device = _get_pg_default_device


def _get_process_group_store(pg):
    """The store through which the group has met."""
    return _world.pg_map[pg][1]


STORE_BASED_BARRIER_PREFIX = "store_based_barrier_key"
GroupName = str
_TORCHCOMM_AVAILABLE = False  # another library for communication, which torch can use


def __getattr__(name):
    if name in ("_coalescing_manager", "_CoalescingManager"):
        from mica.distributed import coalescing

        return getattr(coalescing, name)
    if name in ("DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env"):
        import mica.distributed

        return getattr(mica.distributed, name)
    if name == "ProcessGroupGloo":
        from mica.distributed.native import NativeBackend

        return NativeBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
