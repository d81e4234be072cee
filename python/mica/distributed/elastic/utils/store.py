"""What agents do with a store that they share: wait for each other, and exchange what each has to say."""

from contextlib import contextmanager
from datetime import timedelta

__all__ = ["barrier", "get_all", "store_timeout", "synchronize"]

_NUM_MEMBERS = "/num_members"
_LAST_MEMBER_CHECKIN = "/last_member"


@contextmanager
def store_timeout(store, timeout):
    """Let a store wait for so many seconds within the context."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(before)


def get_all(store, rank, prefix, world_size):
    """The values of all ranks under a prefix. The process of rank 0, which may hold the store, leaves last."""
    values = store.multi_get([f"{prefix}{each}" for each in range(world_size)])
    last = _arrive(store, world_size, f"{prefix}/finished")
    if rank == 0:
        store.wait([last])
    return values


def synchronize(store, data, rank, world_size, key_prefix, timeout=300):
    """Give all ranks what each of them has to say. A prefix serves once: nothing is deleted."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def _arrive(store, world_size, key_prefix):
    """Count this process, and return the key that is set when all have come."""
    last = key_prefix + _LAST_MEMBER_CHECKIN
    if store.add(key_prefix + _NUM_MEMBERS, 1) == world_size:
        store.set(last, "<val_ignored>")
    return last


def _missing(store, world_size, key_prefix, rank, name_of, seconds):
    """Who did not come, as far as rank 0 can tell: it looks for the marks of the others."""
    for each in range(world_size):
        if each == rank:
            continue
        try:
            store.wait([f"{key_prefix}{each}/TRACE"], timedelta(seconds=seconds))
        except RuntimeError:
            yield name_of(each)
            seconds = 0.001


def barrier(store, world_size, key_prefix, barrier_timeout=300, rank=None, rank_tracing_decoder=None, trace_timeout=10):
    """Wait until so many processes have come. With a rank, an error after the time limit names who did not."""
    if rank is None and rank_tracing_decoder is not None:
        raise AssertionError("Tracing requires rank information")
    with store_timeout(store, barrier_timeout):
        last = _arrive(store, world_size, key_prefix)
        if rank is not None:
            store.set(f"{key_prefix}{rank}/TRACE", "<val_ignored>")
        try:
            store.wait([last])
        except RuntimeError as error:
            if rank is None:
                raise
            name_of = rank_tracing_decoder or str
            if rank == 0:
                missing = ", ".join(_missing(store, world_size, key_prefix, rank, name_of, trace_timeout))
                who = f"missing_ranks=[{missing}]"
            else:
                who = f"check rank 0 ({name_of(0)}) for missing rank info"
            raise type(error)(
                f"Timed out waiting on barrier on rank {rank}, for key prefix: {key_prefix} (world_size={world_size}, "
                f"{who}, timeout={barrier_timeout})"
            ) from None
