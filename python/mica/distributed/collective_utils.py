"""Values and results of functions for all ranks of a group, with the failures of one rank on all of them."""

import dataclasses
import typing

from mica.distributed.object_collectives import all_gather_object, broadcast_object_list
from mica.distributed.world import get_global_rank, get_rank, get_world_size

__all__ = ["SyncPayload", "all_gather", "all_gather_object_enforce_type", "broadcast"]

T = typing.TypeVar("T")


@dataclasses.dataclass
class SyncPayload(typing.Generic[T]):
    """What one rank tells the others: a value, or that it failed."""

    stage_name: str | None
    success: bool
    payload: T
    exception: Exception | None = None


def _own(data_or_fn, success, stage_name):
    """The value of this rank, or the exception that its function raised."""
    if not callable(data_or_fn):
        return SyncPayload(stage_name, success, data_or_fn)
    try:
        return SyncPayload(stage_name, success, data_or_fn())
    except Exception as error:
        return SyncPayload(stage_name, False, None, error)


def broadcast(data_or_fn, *, success=True, stage_name=None, rank=0, pg=None):
    """The value that one rank of a group gives, or what its function returns there, on all ranks.

    `success=False` on that rank, or an exception of the function, is a RuntimeError on all of them. Without a group
    every rank stands alone: rank `rank` has its own value, the others None for a function.

    Example::

        name = broadcast(lambda: make_name(), rank=0, pg=torch.distributed.group.WORLD)
    """
    if not success and data_or_fn is not None:
        raise AssertionError("Data or Function is expected to be None if not successful")
    mine = get_rank(pg) if pg is not None else _rank_or_zero()
    payload = SyncPayload(stage_name, success, None)
    if mine == rank or not callable(data_or_fn):
        payload = _own(data_or_fn, success, stage_name)
    if pg is not None:
        told = [payload]
        broadcast_object_list(told, src=get_global_rank(pg, rank), group=pg)
        payload = told[0]
    if not payload.success:
        failed = f"Rank {rank} failed" + (f" at stage {payload.stage_name}" if payload.stage_name else "")
        if payload.exception is not None:
            raise RuntimeError(f"{failed}: exception {payload.exception}") from payload.exception
        raise RuntimeError(failed)
    return payload.payload


def _rank_or_zero():
    try:
        return get_rank()
    except (RuntimeError, ValueError):  # there is no world
        return 0


def all_gather(data_or_fn, stage_name=None, pg=None):
    """The values of all ranks of a group, or what the function returns on each: a list on every rank.

    An exception on one rank is a RuntimeError on all of them, and so are ranks that name different stages. Without a
    group the list has this rank's value alone.
    """
    payloads = [_own(data_or_fn, True, stage_name)]
    if pg is not None:
        told = [None] * get_world_size(pg)
        all_gather_object_enforce_type(pg, told, payloads[0])
        payloads = told
    failed = {i: each.exception for i, each in enumerate(payloads) if not each.success}
    if failed:
        told = ", ".join(str(each) for each in failed.values())
        raise RuntimeError(f"all_gather failed with exception {told}") from next(iter(failed.values()))
    stages = {each.stage_name for each in payloads}
    if len(stages) > 1:
        names = [each.stage_name for each in payloads]
        raise RuntimeError(f"all_gather: the ranks are at different stages {names}")
    return [each.payload for each in payloads]


def all_gather_object_enforce_type(pg, object_list, obj, type_checker=lambda x, y: type(x) is type(y)):
    """`all_gather_object`, and a TypeError on all ranks if `type_checker` refuses an object beside the first one."""
    all_gather_object(object_list, obj, group=pg)
    first = object_list[0]
    for i, each in enumerate(object_list[1:], 1):
        if not type_checker(each, first):
            raise TypeError(f"Object type at index {i} is {type(each)}, while first object type is {type(first)}")
