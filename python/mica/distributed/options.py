"""Reductions, and the options that backends' calls take."""

import datetime
import enum

__all__ = [
    "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "BarrierOptions",
    "BroadcastOptions", "GatherOptions", "ReduceOp", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions",
]  # fmt: skip


class ReduceOp:
    """How values of all processes become one."""

    class RedOpType(enum.IntEnum):
        SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = range(10)

        def __call__(self, factor):
            if self is not ReduceOp.RedOpType.PREMUL_SUM:
                raise TypeError(f"only PREMUL_SUM takes a factor, not {self.name}")
            return _make_nccl_premul_sum(factor)

    def __init__(self, op=RedOpType.SUM, factor=None):
        self.op, self.factor = ReduceOp.RedOpType(int(op)), factor

    def __eq__(self, other):
        return self.op == (other.op if isinstance(other, ReduceOp) else other)

    def __hash__(self):
        return hash(self.op)

    def __int__(self):
        return int(self.op)

    def __repr__(self):
        return f"ReduceOp({self.op.name})"

    def __reduce__(self):
        return ReduceOp, (self.op, self.factor)


for _op in ReduceOp.RedOpType:
    setattr(ReduceOp, _op.name, _op)


def _make_nccl_premul_sum(factor):
    """A sum of values that are first multiplied by a number or a tensor."""
    return ReduceOp(ReduceOp.PREMUL_SUM, factor)


NO_TIMEOUT = datetime.timedelta(milliseconds=-1)  # the group's own


class _Options:
    timeout, asyncOp = NO_TIMEOUT, True

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class BroadcastOptions(_Options):
    """Whose tensor is broadcast."""

    rootRank, rootTensor = 0, 0


class AllreduceOptions(_Options):
    """How the tensors of all processes are reduced."""

    reduceOp, sparseIndices = ReduceOp.SUM, None


class AllreduceCoalescedOptions(AllreduceOptions):
    """How lists of tensors are reduced."""


class ReduceOptions(_Options):
    """How tensors are reduced, and on which process."""

    reduceOp, rootRank, rootTensor = ReduceOp.SUM, 0, 0


class AllgatherOptions(_Options):
    """How long all_gather may take."""


class GatherOptions(_Options):
    """Which process gets the tensors."""

    rootRank = 0


class ScatterOptions(_Options):
    """Which process has the tensors."""

    rootRank = 0


class ReduceScatterOptions(_Options):
    """How tensors are reduced before each process gets its part."""

    reduceOp = ReduceOp.SUM


class BarrierOptions(_Options):
    """Which devices wait for each other."""

    device_ids, device = [], None


class AllToAllOptions(_Options):
    """How long all_to_all may take."""
