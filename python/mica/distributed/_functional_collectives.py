"""Collectives that return their result, with gradients. A result is there when the function returns."""

import mica
from mica.distributed import collectives as _collectives
from mica.distributed import world as _groups
from mica.distributed._watched import standing_for
from mica.distributed.nn.functional import _Broadcast
from mica.distributed.options import ReduceOp
from mica.distributed.process_group import ProcessGroup

_REDUCTIONS = {op.name.lower(): op for op in ReduceOp.RedOpType if op.name not in ("PREMUL_SUM", "UNUSED")}


class AsyncCollectiveTensor(mica.Tensor):
    """The result of a collective, which is complete when it is returned. Operations on it return plain tensors."""

    __torch_function__ = mica._C._disabled_torch_function_impl

    def wait(self):
        """The plain tensor."""
        return self.as_subclass(mica.Tensor)


def _resolve_group(group, tag=""):
    """A group by any of the names that torch takes: itself, its name, its ranks, a mesh, or a mesh and its dimension."""
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, str):
        return _groups._resolve_process_group(group)
    if isinstance(group, (list, tuple)) and group and all(isinstance(rank, (int, list)) for rank in group):
        ranks = [rank for each in group for rank in (each if isinstance(each, list) else [each])]
        if isinstance(group[0], list):  # a grid of ranks, each row of which is a group
            ranks = next((row for row in group if _groups.get_rank() in row), ranks)
        found = _groups._find_pg_by_ranks_and_tag(tag, ranks)
        if found is None:
            raise ValueError(f"no group has the ranks {ranks}: make it with torch.distributed.new_group")
        return found
    if isinstance(group, tuple) and len(group) == 2 and hasattr(group[0], "get_group"):
        return group[0].get_group(group[1])
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise ValueError("Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D")
        return group.get_group()
    raise ValueError(f"Unsupported group type: {type(group)}, {group}")


def _resolve_group_name(group, tag=""):
    return _resolve_group(group, tag).group_name


def _reduction(name):
    found = _REDUCTIONS.get(name.lower())
    if found is None:
        raise RuntimeError(f"Unrecognized reduce_op: {name}")
    return found


def _only_sum(ctx, function):
    if ctx.op != "sum":
        raise RuntimeError(f"{function} backward only supports 'sum' reduction, got '{ctx.op}'")


def _reduced(tensor, name, group):
    made = tensor.detach().clone(memory_format=mica.contiguous_format)
    with standing_for("c10d_functional::all_reduce"):
        _collectives.all_reduce(made, _reduction(name), group)
    return made


def _gathered(tensor, group):
    """All ranks' tensors along the first dimension; a tensor without dimensions counts as one of length 1."""
    tensor = tensor.detach().contiguous()
    tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
    made = mica.empty((tensor.shape[0] * group.size(), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    with standing_for("c10d_functional::all_gather_into_tensor"):
        _collectives.all_gather_single(made, tensor, group)
    return made


def _scattered(tensor, name, group):
    tensor = tensor.detach().contiguous()
    if tensor.shape[0] % group.size():
        raise RuntimeError(f"input dimension 0 ({tensor.shape[0]} must be a multiple of group_size {group.size()})")
    made = mica.empty((tensor.shape[0] // group.size(), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    with standing_for("c10d_functional::reduce_scatter_tensor"):
        _collectives.reduce_scatter_single(made, tensor, _reduction(name), group)
    return made


def _exchanged(tensor, outputs, inputs, group):
    tensor = tensor.detach().contiguous()
    length = tensor.shape[0] if outputs is None else sum(outputs)
    made = mica.empty((length, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    with standing_for("c10d_functional::all_to_all_single"):
        _collectives.all_to_all_single(made, tensor, outputs, inputs, group)
    return made


class _AllReduce(mica.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, group):
        ctx.op, ctx.group = name.lower(), group
        return _reduced(tensor, name, group)

    @staticmethod
    def backward(ctx, grad):
        _only_sum(ctx, "all_reduce")
        return _AllReduce.apply(grad, "sum", ctx.group), None, None


class _AllGather(mica.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group, ctx.shape = group, tensor.shape
        return _gathered(tensor, group)

    @staticmethod
    def backward(ctx, grad):
        return _ReduceScatter.apply(grad, "sum", ctx.group).reshape(ctx.shape), None


class _ReduceScatter(mica.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, group):
        ctx.op, ctx.group = name.lower(), group
        return _scattered(tensor, name, group)

    @staticmethod
    def backward(ctx, grad):
        _only_sum(ctx, "reduce_scatter_tensor")
        return _AllGather.apply(grad, ctx.group), None, None


class _AllToAll(mica.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, outputs, inputs, group):
        ctx.outputs, ctx.inputs, ctx.group = outputs, inputs, group
        return _exchanged(tensor, outputs, inputs, group)

    @staticmethod
    def backward(ctx, grad):
        return _AllToAll.apply(grad, ctx.inputs, ctx.outputs, ctx.group), None, None, None


def _done(tensor):
    """A result with torch's method `wait`, for programs that call it."""
    return tensor.as_subclass(AsyncCollectiveTensor)


def wait_tensor(tensor):
    """Return the tensor. The collective that made it is complete already."""
    return tensor.view_as(tensor)


def broadcast(self, src, group, tag=""):
    """The tensor of the process `src`, on every process."""
    group = _resolve_group(group, tag)
    if not 0 <= src < group.size():
        raise ValueError(f"broadcast: there is no process {src} in a group of {group.size()}")
    return _done(_Broadcast.apply(src, group, self))


def all_reduce(self, reduceOp, group, tag=""):
    """The sum, or another reduction, of the tensors of all processes."""
    group = _resolve_group(group, tag)
    _check_reduction(self, reduceOp)
    return _done(_AllReduce.apply(self, reduceOp, group))


def _check_reduction(tensor, name):
    _reduction(name)
    if name.lower() == "avg" and not (tensor.is_floating_point() or tensor.is_complex()):
        kind = str(tensor.dtype).removeprefix("torch.")
        raise RuntimeError(f"result type Float can't be cast to the desired output type {kind}")


def _dimension(self, dim):
    if not -self.dim() <= dim < self.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-self.dim()}, {self.dim() - 1}], but got {dim})"
        )
    return dim % self.dim()


def all_gather_single(self, gather_dim, group, tag=""):
    """The tensors of all processes, one after the other along a dimension."""
    group = _resolve_group(group, tag)
    dim = _dimension(self, gather_dim) if self.dim() else 0
    made = _AllGather.apply(self, group)
    return _done(made if dim == 0 else mica.cat(mica.chunk(made, group.size(), 0), dim))


def reduce_scatter_single(self, reduceOp, scatter_dim, group, tag=""):
    """This process's part, along a dimension, of the reduction of all tensors."""
    group = _resolve_group(group, tag)
    dim = _dimension(self, scatter_dim)
    _check_reduction(self, reduceOp)
    if self.shape[dim] % group.size():
        raise RuntimeError(f"input dimension 0 ({self.shape[dim]} must be a multiple of group_size {group.size()})")
    if dim:
        self = mica.cat(mica.chunk(self, group.size(), dim), 0)
    return _done(_ReduceScatter.apply(self, reduceOp, group))


all_gather_tensor = all_gather_tensor_autograd = all_gather_single_autograd = all_gather_single
reduce_scatter_tensor = reduce_scatter_tensor_autograd = reduce_scatter_single_autograd = reduce_scatter_single


def all_to_all_single(self, output_split_sizes, input_split_sizes, group, tag=""):
    """Split each process's tensor and send each part to another process. Returns the parts that came here."""
    group = _resolve_group(group, tag)
    outputs = None if output_split_sizes is None else [int(each) for each in output_split_sizes]
    inputs = None if input_split_sizes is None else [int(each) for each in input_split_sizes]
    if inputs is not None and sum(inputs) != self.shape[0]:
        raise RuntimeError(
            f"Split sizes doesn't match total dim 0 size: {inputs} add up to {sum(inputs)}, and the tensor has "
            f"{self.shape[0]} rows"
        )
    return _done(_AllToAll.apply(self, outputs, inputs, group))


all_to_all_single_autograd = all_to_all_single


def permute_tensor(self, src_dst, group, tag=""):
    """The tensor of the process that sends to this one: src_dst[i] is where process i sends its tensor."""
    group = _resolve_group(group, tag)
    if sorted(src_dst) != list(range(group.size())):
        raise IndexError(f"permute_tensor: {list(src_dst)} does not say where each of {group.size()} processes sends")
    inputs, outputs = [0] * group.size(), [0] * group.size()
    inputs[src_dst[group.rank()]] = self.shape[0]
    outputs[list(src_dst).index(group.rank())] = self.shape[0]
    return all_to_all_single(self, outputs, inputs, group)


def all_reduce_coalesced(self, reduceOp, group, tag=""):
    """all_reduce of every tensor of a list."""
    return [all_reduce(tensor, reduceOp, group, tag) for tensor in self]


def all_gather_into_tensor_coalesced(self, group, tag=""):
    """all_gather_tensor of every tensor of a list, along the first dimension."""
    return [all_gather_single(tensor, 0, group, tag) for tensor in self]


all_gather_single_coalesced = all_gather_into_tensor_coalesced


def reduce_scatter_tensor_coalesced(inputs, reduceOp, scatter_dim, group, tag=""):
    """reduce_scatter_tensor of every tensor of a list, along a dimension of its own."""
    return [reduce_scatter_single(x, reduceOp, dim, group, tag) for x, dim in zip(inputs, scatter_dim, strict=True)]


reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced


def _all_gather_inplace(output_tensor, input_tensor, group, async_op=False, tag="", gather_dim=0):
    return output_tensor.copy_(all_gather_single(input_tensor, gather_dim, group, tag))


all_gather_tensor_inplace = _all_gather_inplace


def reduce_scatter_tensor_inplace(output, input, op="sum", group=None, async_op=False, scatter_dim=0, tag=""):
    """reduce_scatter_tensor into a tensor."""
    return output.copy_(reduce_scatter_single(input, op, scatter_dim, group, tag))
