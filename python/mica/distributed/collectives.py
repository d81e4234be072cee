"""What processes do together with tensors."""

import warnings

import mica
from mica._functions.wrapping import asks_as_called
from mica.distributed import world as _groups
from mica.distributed._watched import watchers
from mica.distributed.options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)  # fmt: skip
from mica.distributed.world import _group, _rank_not_in_group, _world, get_group_rank, get_rank

__all__ = [
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather", "monitored_barrier",
    "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
]  # fmt: skip


def _check_tensor(value, name):
    if not isinstance(value, mica.Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got {type(value)} instead."
        )


def _check_tensors(values, name):
    if not isinstance(values, list) or not all(isinstance(each, mica.Tensor) for each in values):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] but got {type(values)} instead."
        )


def _check_same_dtype(*tensors):
    flat = [t for each in tensors for t in (each if isinstance(each, (list, tuple)) else [each])]
    for each in flat:
        if each.dtype != flat[0].dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes: found {flat[0].dtype} and {each.dtype}")


def _check_complex(name, tensor, op):
    if tensor.is_complex() and not _groups.supports_complex(op):
        raise ValueError(f"{name} does not support {op} on complex tensors")


def _outside(name, group):
    """Whether this process is not in the group, in which case nothing happens."""
    if not _rank_not_in_group(group):
        return False
    warnings.warn(f"Running {name} on global rank {get_rank()} which does not belong to the given group.", stacklevel=3)
    return True


def _root(group, rank, group_rank, default=None):
    """A root's rank in the group, of its rank in the world or in the group."""
    if rank is not None and group_rank is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    if group_rank is not None:
        return group_rank
    if rank is None:
        if default is None:
            raise ValueError("Must specify global_rank or group_rank")
        rank = default
    return get_group_rank(group, rank)


def _end(work, async_op):
    if async_op:
        return work
    if work is not None:
        work.wait()
    return None


def _options(kind, async_op, **values):
    made = kind()
    made.asyncOp = async_op
    for name, value in values.items():
        setattr(made, name, value)
    return made


def _later(group, kind, tensors, op=None):
    """Whether a coalescing manager of the group takes the call."""
    waiting = _world.pg_coalesce_state.get(group)
    if waiting is None:
        return False
    waiting.append((kind, tensors, op))
    return True


@asks_as_called
def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Every process gets the tensor of one."""
    group = _group(group)
    root = _root(group, src, group_src) if not _rank_not_in_group(group) else 0
    _check_tensor(tensor, "tensor")
    if _outside("broadcast", group):
        return None
    return _end(group.broadcast([tensor], _options(BroadcastOptions, async_op, rootRank=root)), async_op)


@asks_as_called
def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Every process gets the sum, or another reduction, of all tensors."""
    if not async_op and not _world.pg_coalesce_state and not watchers:
        chosen = _world.default_pg if group is None else group
        short = getattr(chosen, "_plain_all_reduce", None)
        if short is not None and short(tensor, op):
            return None
    if not isinstance(tensor, mica.Tensor):
        _check_tensor(tensor, "tensor")
    group = _group(group)
    if _outside("all_reduce", group):
        return None
    if tensor.is_complex():
        _check_complex("all_reduce", tensor, op)
        if op in (ReduceOp.SUM, ReduceOp.AVG) and not tensor.is_conj() and not tensor.is_neg():
            pass
    if _world.pg_coalesce_state and _later(group, "all_reduce", tensor, op):
        return None
    opts = AllreduceOptions()
    opts.reduceOp, opts.asyncOp = op, async_op
    work = group.allreduce([tensor], opts)
    if async_op:
        return work
    if work is not None:
        work.wait()
    return None


@asks_as_called
def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    """all_reduce of every tensor of a list."""
    tensors = [tensors] if isinstance(tensors, mica.Tensor) else tensors
    _check_tensors(tensors, "tensor")
    _check_same_dtype(tensors)
    group = _group(group)
    if _outside("all_reduce_coalesced", group):
        return None
    for each in tensors:
        _check_complex("all_reduce", each, op)
    opts = _options(AllreduceCoalescedOptions, async_op, reduceOp=op)
    return _end(group.allreduce_coalesced(tensors, opts), async_op)


@asks_as_called
def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """One process gets the reduction of all tensors."""
    group = _group(group)
    root = _root(group, dst, group_dst) if not _rank_not_in_group(group) else 0
    _check_tensor(tensor, "tensor")
    if _outside("reduce", group):
        return None
    _check_complex("reduce", tensor, op)
    return _end(group.reduce([tensor], _options(ReduceOptions, async_op, rootRank=root, reduceOp=op)), async_op)


@asks_as_called
def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Every process gets all tensors, in a list of tensors of its own."""
    _check_tensors(tensor_list, "tensor_list")
    _check_tensor(tensor, "tensor")
    _check_same_dtype(tensor_list, tensor)
    group = _group(group)
    if _outside("all_gather", group):
        return None
    return _end(group.allgather([tensor_list], [tensor], _options(AllgatherOptions, async_op)), async_op)


@asks_as_called
def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    """all_gather of every tensor of a list."""
    _check_tensors(input_tensor_list, "input_tensor_list")
    if not isinstance(output_tensor_lists, list):
        raise TypeError("Invalid function argument: output_tensor_lists should be a list")
    for each in output_tensor_lists:
        _check_tensors(each, "output_tensor_lists")
    group = _group(group)
    if _outside("all_gather_coalesced", group):
        return None
    work = group.allgather_coalesced(output_tensor_lists, input_tensor_list, _options(AllgatherOptions, async_op))
    if async_op:
        return work.get_future()
    return _end(work, async_op)


@asks_as_called
def all_gather_single(output_tensor, input_tensor, group=None, async_op=False):
    """Every process gets all tensors, one after the other in one."""
    _check_tensor(input_tensor, "input_tensor")
    _check_tensor(output_tensor, "output_tensor")
    group = _group(group)
    if _outside("all_gather_single", group):
        return None
    if _later(group, "all_gather", (output_tensor, input_tensor)):
        return None
    work = group._allgather_base(output_tensor, input_tensor, _options(AllgatherOptions, async_op))
    return _end(work, async_op)


all_gather_into_tensor = _all_gather_base = all_gather_single


@asks_as_called
def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """One process gets all tensors."""
    _check_tensor(tensor, "tensor")
    if gather_list:
        _check_tensors(gather_list, "gather_list")
    else:
        gather_list = []
    group = _group(group)
    if _outside("gather", group):
        return None
    root = _root(group, dst, group_dst, default=0)
    _check_same_dtype(tensor, gather_list)
    if group.rank() == root and not gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if group.rank() != root and gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    outputs = [gather_list] if group.rank() == root else []
    return _end(group.gather(outputs, [tensor], _options(GatherOptions, async_op, rootRank=root)), async_op)


@asks_as_called
def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Every process gets one of the tensors of one."""
    _check_tensor(tensor, "tensor")
    if scatter_list:
        _check_tensors(scatter_list, "scatter_list")
    else:
        scatter_list = []
    group = _group(group)
    if _outside("scatter", group):
        return None
    _check_same_dtype(tensor, scatter_list)
    root = _root(group, src, group_src, default=0)
    if group.rank() == root and not scatter_list:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    if group.rank() != root and scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    inputs = [scatter_list] if group.rank() == root else []
    return _end(group.scatter([tensor], inputs, _options(ScatterOptions, async_op, rootRank=root)), async_op)


@asks_as_called
def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Every process gets its part of the reduction of all, of lists of tensors."""
    _check_tensor(output, "output")
    _check_tensors(input_list, "input_list")
    _check_same_dtype(output, input_list)
    group = _group(group)
    if _outside("reduce_scatter", group):
        return None
    work = group.reduce_scatter([output], [input_list], _options(ReduceScatterOptions, async_op, reduceOp=op))
    return _end(work, async_op)


@asks_as_called
def reduce_scatter_single(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """Every process gets its part of the reduction of all, of one tensor."""
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    group = _group(group)
    if _outside("reduce_scatter_single", group):
        return None
    if _later(group, "reduce_scatter", (output, input), op):
        return None
    work = group._reduce_scatter_base(output, input, _options(ReduceScatterOptions, async_op, reduceOp=op))
    return _end(work, async_op)


reduce_scatter_tensor = _reduce_scatter_base = reduce_scatter_single


@asks_as_called
def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Every process sends one tensor to every process."""
    group = _group(group)
    if _outside("all_to_all", group):
        return None
    _check_tensors(output_tensor_list, "output_tensor_list")
    _check_tensors(input_tensor_list, "input_tensor_list")
    _check_same_dtype(output_tensor_list, input_tensor_list)
    work = group.alltoall(output_tensor_list, input_tensor_list, _options(AllToAllOptions, async_op))
    return _end(work, async_op)


@asks_as_called
def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Every process sends a part of a tensor, along the first dimension, to every process."""
    group = _group(group)
    if _outside("all_to_all_single", group):
        return None
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    _check_same_dtype(output, input)
    splits = [list(each) if each is not None else [] for each in (output_split_sizes, input_split_sizes)]
    return _end(group.alltoall_base(output, input, *splits, _options(AllToAllOptions, async_op)), async_op)


def barrier(group=None, async_op=False, device_ids=None):
    """Wait for all processes."""
    group = _group(group)
    if _outside("barrier", group):
        return None
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    return _end(group.barrier(_options(BarrierOptions, async_op, device_ids=device_ids or [])), async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """Wait for all processes; where some do not come in time, rank 0 raises an error that names them."""
    group = _group(group)
    if _outside("monitored_barrier", group):
        return
    if timeout is None:
        timeout = _groups._world.timeout
    _groups._check_timeout(timeout)
    rank, size, store = group.rank(), group.size(), group.get_group_store()
    count = group.__dict__["_barriers"] = group.__dict__.get("_barriers", -1) + 1
    prefix, late = f"monitored{count}", []
    if size == 1:
        return
    if rank:
        store.set(f"{prefix}/{rank}", "1")
        try:
            store.wait([f"{prefix}/end"], timeout)
        except RuntimeError:
            raise RuntimeError(
                f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
            ) from None
        if store.get(f"{prefix}/end") != b"1":
            raise RuntimeError(
                f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
            )
        return
    import time

    end = time.monotonic() + timeout.total_seconds()
    for each in range(1, size):
        left = max(end - time.monotonic(), 0.001)
        try:
            store.wait([f"{prefix}/{each}"], type(timeout)(seconds=left))
        except RuntimeError:
            late.append(each)
            if not wait_all_ranks:
                break
    store.set(f"{prefix}/end", "0" if late else "1")
    if late:
        names = ", ".join(map(str, late))
        what = f"Ranks {names}" if wait_all_ranks else f"Rank {names}"
        raise RuntimeError(
            f"[Rank 0]: {what} failed to pass monitoredBarrier in {round(timeout.total_seconds() * 1000)} ms"
        )
