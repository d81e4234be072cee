"""Collectives with gradients, which processes compute together too."""

import mica
from mica.distributed import collectives as _collectives
from mica.distributed.collectives import _check_tensor, _root
from mica.distributed.options import ReduceOp
from mica.distributed.world import _group

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce",
           "reduce_scatter", "scatter"]  # fmt: skip


def _plain(tensor):
    return tensor.detach().contiguous()


class _Broadcast(mica.autograd.Function):
    @staticmethod
    def forward(ctx, root, group, tensor):
        ctx.root, ctx.group = root, group
        made = tensor.detach().clone(memory_format=mica.contiguous_format)
        _collectives.broadcast(made, group=group, group_src=root)
        return made

    @staticmethod
    def backward(ctx, grad):
        total = _Reduce.apply(ctx.root, ReduceOp.SUM, ctx.group, grad)
        return None, None, total if ctx.group.rank() == ctx.root else mica.zeros_like(total)


class _Reduce(mica.autograd.Function):
    @staticmethod
    def forward(ctx, root, op, group, tensor):
        ctx.root, ctx.group = root, group
        made = tensor.detach().clone(memory_format=mica.contiguous_format)
        _collectives.reduce(made, op=op, group=group, group_dst=root)
        return made

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, _Broadcast.apply(ctx.root, ctx.group, grad)


class _Gather(mica.autograd.Function):
    @staticmethod
    def forward(ctx, root, group, tensor):
        ctx.root, ctx.group = root, group
        made = [mica.zeros_like(tensor, memory_format=mica.contiguous_format) for _ in range(group.size())]
        _collectives.gather(_plain(tensor), made if group.rank() == root else None, group=group, group_dst=root)
        return tuple(made)

    @staticmethod
    def backward(ctx, *grads):
        return None, None, _Scatter.apply(ctx.root, ctx.group, *grads)


class _Scatter(mica.autograd.Function):
    @staticmethod
    def forward(ctx, root, group, *tensors):
        ctx.root, ctx.group = root, group
        made = mica.zeros_like(tensors[0], memory_format=mica.contiguous_format)
        given = [_plain(each) for each in tensors] if group.rank() == root else None
        _collectives.scatter(made, given, group=group, group_src=root)
        return made

    @staticmethod
    def backward(ctx, grad):
        return None, None, *_Gather.apply(ctx.root, ctx.group, grad)


class _ReduceScatter(mica.autograd.Function):
    @staticmethod
    def forward(ctx, op, group, outputs, *tensors):
        ctx.group = group
        (made,) = outputs
        _collectives.reduce_scatter(made, [_plain(each) for each in tensors], op, group)
        return made

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, *_AllGather.apply(ctx.group, grad)


class _AllGather(mica.autograd.Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        made = [mica.empty_like(tensor, memory_format=mica.contiguous_format) for _ in range(group.size())]
        _collectives.all_gather(made, _plain(tensor), group)
        return tuple(made)

    @staticmethod
    def backward(ctx, *grads):
        made = mica.empty_like(grads[ctx.group.rank()], memory_format=mica.contiguous_format)
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, [made], *grads)


class _AllToAll(mica.autograd.Function):
    @staticmethod
    def forward(ctx, group, outputs, *tensors):
        ctx.group, ctx.shapes = group, [each.shape for each in tensors]
        _collectives.all_to_all(outputs, [_plain(each) for each in tensors], group)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *grads):
        made = [mica.empty(shape, dtype=grads[0].dtype, device=grads[0].device) for shape in ctx.shapes]
        return None, None, *_AllToAll.apply(ctx.group, made, *grads)


class _AllToAllSingle(mica.autograd.Function):
    @staticmethod
    def forward(ctx, group, output, outputs, inputs, tensor):
        ctx.group, ctx.shape, ctx.outputs, ctx.inputs = group, tensor.shape, outputs, inputs
        (made,) = output
        _collectives.all_to_all_single(made, _plain(tensor), outputs, inputs, group)
        return made

    @staticmethod
    def backward(ctx, grad):
        made = [mica.empty(ctx.shape, dtype=grad.dtype, device=grad.device)]
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, made, ctx.inputs, ctx.outputs, grad)


class _AllReduce(mica.autograd.Function):
    @staticmethod
    def forward(ctx, op, group, tensor):
        ctx.op, ctx.group = op, group
        made = tensor.detach().clone(memory_format=mica.contiguous_format)
        _collectives.all_reduce(made, op, group)
        return made

    @staticmethod
    def backward(ctx, grad):
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


def broadcast(tensor, src, group=None):
    """The tensor of one process. Its gradient is the sum of all processes'."""
    group = _group(group)
    return _Broadcast.apply(_root(group, src, None), group, tensor)


def gather(tensor, dst=0, group=None):
    """A tuple of all tensors on one process, of zeros on others."""
    group = _group(group)
    return _Gather.apply(_root(group, dst, None), group, tensor)


def scatter(tensors, src=0, group=None):
    """One of the tensors of one process."""
    group = _group(group)
    return _Scatter.apply(_root(group, src, None), group, *tensors)


def reduce(tensor, dst, op=ReduceOp.SUM, group=None):
    """The reduction of all tensors on one process."""
    group = _group(group)
    return _Reduce.apply(_root(group, dst, None), op, group, tensor)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    """This process's part of the reduction of all, written to `output` too."""
    return _ReduceScatter.apply(op, _group(group), [output.detach()], *input_list)


def all_gather(tensor, group=None):
    """A tuple of all tensors."""
    return _AllGather.apply(_group(group), tensor)


def all_to_all(output_tensor_list, input_tensor_list, group=None):
    """A tuple of what all processes send this one, written to the tensors of the first list too."""
    return _AllToAll.apply(_group(group), [each.detach() for each in output_tensor_list], *input_tensor_list)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    """What all processes send this one, in one tensor, written to `output` too."""
    return _AllToAllSingle.apply(_group(group), [output.detach()], output_split_sizes, input_split_sizes, input)


def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """The reduction of all tensors."""
    _check_tensor(tensor, "tensor")
    return _AllReduce.apply(op, _group(group), tensor)
