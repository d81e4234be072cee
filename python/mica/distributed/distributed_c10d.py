"""Groups of processes and what they do together, by the module that torch has it in."""

from mica.distributed import collectives as _collectives
from mica.distributed import process_group as _process_group
from mica.distributed.collectives import *  # noqa: F403
from mica.distributed.collectives import _all_gather_base, _reduce_scatter_base  # noqa: F401
from mica.distributed.process_group import *  # noqa: F403
from mica.distributed.process_group import (  # noqa: F401
    GroupMember,
    _get_default_group,
    _pg_map,
    _pickler,
    _rank_not_in_group,
    _unpickler,
    _world,
    default_pg_nccl_timeout,
    default_pg_timeout,
    group,
)
from mica.distributed.store import FileStore, HashStore, PrefixStore, Store, TCPStore  # noqa: F401

__all__ = [*_process_group.__all__, *_collectives.__all__]
