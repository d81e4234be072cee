"""Several collectives as one work."""

import contextlib

from mica.distributed.options import AllgatherOptions, AllreduceOptions, ReduceScatterOptions
from mica.distributed.world import _group, _world


class _CoalescingManager:
    """The works of the calls that a coalescing manager took."""

    def __init__(self):
        self.works = []

    def append(self, work=None):
        if work is not None:
            self.works.append(work)

    def wait(self):
        for each in self.works:
            each.wait()


@contextlib.contextmanager
def _coalescing_manager(group=None, device=None, async_ops=False):
    """Collectives of one kind within the block start together at its end."""
    group = _group(group)
    if group in _world.pg_coalesce_state:
        raise ValueError("ProcessGroup has non-empty op list at the start of coalescing")
    calls = _world.pg_coalesce_state[group] = []
    manager = _CoalescingManager()
    try:
        yield manager
    finally:
        _world.pg_coalesce_state.pop(group, None)
    if not calls:
        return
    kind, _, op = calls[0]
    if any(each[0] != kind or each[2] != op for each in calls):
        raise AssertionError("Coalescing manager requires all collectives to be the same")
    if kind == "all_reduce":
        opts = AllreduceOptions()
        opts.reduceOp = op
        work = group.allreduce_coalesced([tensor for _, tensor, _ in calls], opts)
    else:
        outputs, inputs = [c[1][0] for c in calls], [c[1][1] for c in calls]
        if kind == "all_gather":
            work = group.allgather_into_tensor_coalesced(outputs, inputs, AllgatherOptions())
        else:
            opts = ReduceScatterOptions()
            opts.reduceOp = op
            work = group.reduce_scatter_tensor_coalesced(outputs, inputs, opts)
    manager.append(work)
    if not async_ops:
        manager.wait()
