"""What processes do together. For the only one there is, results are what goes in."""

import pickle

import mica
from mica.distributed.process_group import ReduceOp, Work, _get_default_group, _group, _only_rank, is_initialized

__all__ = [
    "P2POp", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "irecv", "isend", "monitored_barrier", "recv",
    "recv_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
    "send", "send_object_list",
]  # fmt: skip


def _done(async_op, result=None):
    return Work(result) if async_op else None


def _check_tensor(value, name):
    if not isinstance(value, mica.Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got {type(value)} instead."
        )


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Every process gets the tensor of one."""
    _group(group)
    _check_tensor(tensor, "tensor")
    _only_rank(src)
    return _done(async_op, [tensor])


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Every process gets the sum, or another reduction, of all tensors."""
    _group(group)
    _check_tensor(tensor, "tensor")
    return _done(async_op, [tensor])


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    _group(group)
    return _done(async_op, tensors)


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """One process gets the reduction of all tensors."""
    _only_rank(dst)
    return all_reduce(tensor, op, group, async_op)


def _copy_into(target, source):
    with mica.no_grad():
        target.copy_(source.reshape(target.shape))


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Every process gets all tensors, in a list of tensors of its own."""
    _group(group)
    _check_tensor(tensor, "tensor")
    _copy_into(_single(tensor_list), tensor)
    return _done(async_op, tensor_list)


def _single(values):
    if len(values) != 1:
        raise ValueError(f"expected a list of 1 for a group of one process, but got {len(values)}")
    return values[0]


def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    for tensors, tensor in zip(output_tensor_lists, input_tensor_list, strict=True):
        all_gather(tensors, tensor, group)
    return _done(async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """Every process gets all tensors, one after the other in one."""
    _group(group)
    _copy_into(output_tensor, input_tensor)
    return _done(async_op, [output_tensor])


_all_gather_base = all_gather_into_tensor


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """One process gets all tensors."""
    _only_rank(dst)
    if gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    return all_gather(gather_list, tensor, group, async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Every process gets one of the tensors of one."""
    _group(group)
    _only_rank(src)
    if scatter_list is None:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    _copy_into(tensor, _single(scatter_list))
    return _done(async_op, [tensor])


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Every process gets its part of the reduction of all."""
    _group(group)
    _copy_into(output, _single(input_list))
    return _done(async_op, [output])


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    _group(group)
    _copy_into(output, input)
    return _done(async_op, [output])


_reduce_scatter_base = reduce_scatter_tensor


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Every process sends one tensor to every process."""
    _group(group)
    _copy_into(_single(output_tensor_list), _single(input_tensor_list))
    return _done(async_op, output_tensor_list)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    _group(group)
    _copy_into(output, input)
    return _done(async_op, [output])


def barrier(group=None, async_op=False, device_ids=None):
    """Wait for all processes."""
    _group(group)
    return _done(async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    _group(group)


# ---- objects


def _check_group(group):
    if not is_initialized():
        _get_default_group()
    return _group(group)


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None, weights_only=False):
    _check_group(group)
    _only_rank(src)


def all_gather_object(object_list, obj, group=None):
    _check_group(group)
    _single(object_list)
    object_list[0] = pickle.loads(pickle.dumps(obj))


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    _check_group(group)
    if object_gather_list is None:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    all_gather_object(object_gather_list, obj, group)


def scatter_object_list(
    scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
):
    _check_group(group)
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    scatter_object_output_list[0] = _single(scatter_object_input_list)


# ---- from one process to another: there is no other


def _alone(*args, **kwargs):
    _get_default_group()
    raise ValueError(
        "Invalid destination rank: destination rank should not be the same as the rank of the current process: the world has one process."
    )


send = recv = isend = irecv = send_object_list = recv_object_list = _alone


class P2POp:
    """Something to send or receive."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag


def batch_isend_irecv(p2p_op_list):
    return [each.op(each.tensor) for each in p2p_op_list]


def _get_pg_default_device(group=None):
    return mica.device("cpu")
