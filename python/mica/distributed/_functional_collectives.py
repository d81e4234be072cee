"""Collectives that return their result. The group is this process: each is a copy of what goes in, gradient included."""

import mica
from mica.distributed import process_group as _groups

_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


class AsyncCollectiveTensor(mica.Tensor):
    """The result of a collective that may not be done yet: results here are plain tensors, done when they are returned."""

    def wait(self):
        return self


def _check_group(group):
    """A group by any of the names that torch takes: itself, its name, its ranks, a mesh, or a mesh and its dimension."""
    if isinstance(group, _groups.ProcessGroup):
        return
    if isinstance(group, str):
        if not any(group == each.group_name for each in _groups._world.pg_map):
            raise RuntimeError(f"Could not resolve the process group registered under the name {group}")
        return
    mesh = group[0] if isinstance(group, tuple) and len(group) == 2 else group
    if isinstance(group, (list, tuple)) and all(isinstance(rank, (int, list)) for rank in group):
        ranks = [rank for each in group for rank in (each if isinstance(each, list) else [each])]
        if ranks != [0]:
            raise ValueError(f"the ranks {ranks} are no group of a world of one process")
    elif not hasattr(mesh, "get_group"):
        raise ValueError(f"Unsupported group type: {type(group)}, {group}")


def _check_reduction(tensor, name):
    if name.lower() not in _REDUCTIONS:
        raise RuntimeError(f"Unrecognized reduce_op: {name}")
    if name.lower() == "avg" and not (tensor.is_floating_point() or tensor.is_complex()):
        kind = str(tensor.dtype).removeprefix("torch.")
        raise RuntimeError(f"result type Float can't be cast to the desired output type {kind}")


class _OnlySums(mica.autograd.Function):
    """A copy that has no gradient: that of an average, a product or an extremum over processes is not defined."""

    @staticmethod
    def forward(ctx, tensor, name):
        ctx.name = name
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError(f"all_reduce backward only supports 'sum' reduction, got '{ctx.name}'")


def wait_tensor(tensor):
    """The tensor: what it is the result of is done."""
    return tensor.view_as(tensor)


def broadcast(self, src, group, tag=""):
    """The tensor of the process `src`, on every process."""
    _check_group(group)
    if src != 0:
        raise ValueError(f"broadcast: there is no process {src} in a world of one")
    return self.clone()


def all_reduce(self, reduceOp, group, tag=""):
    """The sum, or another reduction, of the tensors of all processes."""
    _check_group(group)
    _check_reduction(self, reduceOp)
    return self.clone() if reduceOp.lower() == "sum" else _OnlySums.apply(self, reduceOp)


def _check_dim(self, dim):
    if not -self.dim() <= dim < self.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-self.dim()}, {self.dim() - 1}], but got {dim})"
        )


def all_gather_tensor(self, gather_dim, group, tag=""):
    """The tensors of all processes, one after the other along a dimension."""
    _check_group(group)
    _check_dim(self, gather_dim)
    return self.clone()


def reduce_scatter_tensor(self, reduceOp, scatter_dim, group, tag=""):
    """This process's part, along a dimension, of the reduction of all tensors."""
    _check_group(group)
    _check_dim(self, scatter_dim)
    _check_reduction(self, reduceOp)
    return self.clone()


all_gather_tensor_autograd, reduce_scatter_tensor_autograd = all_gather_tensor, reduce_scatter_tensor


def all_to_all_single(self, output_split_sizes, input_split_sizes, group, tag=""):
    """What all processes send this one: each process's tensor is split, and each part goes to another."""
    _check_group(group)
    for sizes in (output_split_sizes, input_split_sizes):
        if sizes is not None and list(sizes) != [self.shape[0]]:
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
    return self.clone()


all_to_all_single_autograd = all_to_all_single


def permute_tensor(self, src_dst, group, tag=""):
    """The tensor of the process that sends to this one: src_dst[i] is where process i sends its tensor."""
    _check_group(group)
    if list(src_dst) != [0]:
        raise IndexError(f"permute_tensor: {list(src_dst)} does not say where the only process sends its tensor")
    return self.clone()


def all_reduce_coalesced(self, reduceOp, group, tag=""):
    """all_reduce of every tensor of a list."""
    return [all_reduce(tensor, reduceOp, group, tag) for tensor in self]


def all_gather_into_tensor_coalesced(self, group, tag=""):
    """all_gather_tensor of every tensor of a list, along the first dimension."""
    return [all_gather_tensor(tensor, 0, group, tag) for tensor in self]


def reduce_scatter_tensor_coalesced(inputs, reduceOp, scatter_dim, group, tag=""):
    """reduce_scatter_tensor of every tensor of a list, along a dimension of its own."""
    return [reduce_scatter_tensor(x, reduceOp, dim, group, tag) for x, dim in zip(inputs, scatter_dim, strict=True)]
