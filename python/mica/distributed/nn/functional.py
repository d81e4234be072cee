"""Collectives with gradients: for a world of one, what goes in."""

from mica.distributed.collectives import _single
from mica.distributed.process_group import ReduceOp, _group, _only_rank

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce",
           "reduce_scatter", "scatter"]  # fmt: skip


def all_gather(tensor, group=None):
    """A tuple of all tensors."""
    _group(group)
    return (tensor.clone(),)


def gather(tensor, dst=0, group=None):
    _only_rank(dst)
    return all_gather(tensor, group)


def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """The reduction of all tensors."""
    _group(group)
    return tensor.clone()


def reduce(tensor, dst, op=ReduceOp.SUM, group=None):
    _only_rank(dst)
    return all_reduce(tensor, op, group)


def broadcast(tensor, src, group=None):
    _only_rank(src)
    return all_reduce(tensor, group=group)


def scatter(tensors, src=0, group=None):
    _group(group)
    return _single(tensors).clone()


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    _group(group)
    return _single(input_list).clone()


def all_to_all(output_tensor_list, input_tensor_list, group=None):
    _group(group)
    return (_single(input_tensor_list).clone(),)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    _group(group)
    return input.clone()
