"""Spreading a tensor in another way: the collectives that lead from one list of placements to another."""

import mica
from mica import distributed
from mica.distributed._watched import standing_for
from mica.distributed.tensor._dtensor_spec import DTensorSpec, dtensor_class
from mica.distributed.tensor._gradients import begin_pass
from mica.distributed.tensor._utils import compute_local_shape
from mica.distributed.tensor.placement_types import (
    Partial,
    Replicate,
    Shard,
    _NormPartial,
    _StridedShard,
    splitting_order,
)

_OPERATIONS = {"sum": "SUM", "avg": "AVG", "max": "MAX", "min": "MIN", "product": "PRODUCT"}


def reduction(placement):
    """The reduction that a partial placement waits for."""
    name = _OPERATIONS.get(placement.reduce_op)
    if name is None:
        raise RuntimeError(f"Partial({placement.reduce_op!r}): the reductions are {', '.join(_OPERATIONS)}")
    return getattr(distributed.ReduceOp, name)


def _lengths(size, count):
    return [Shard.local_shard_size_and_offset(size, count, rank)[0] for rank in range(count)]


def _padded(tensor, dim, length):
    if tensor.shape[dim] == length:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = length - tensor.shape[dim]
    return mica.cat([tensor, tensor.new_zeros(shape)], dim)


# ---- one dimension of the grid


def all_gathered(local, dim, size, group):
    """The parts of all processes along a dimension that is `size` long in all."""
    count = group.size()
    if count == 1:
        return local
    lengths = _lengths(size, count)
    part = _padded(local.detach(), dim, lengths[0]).movedim(dim, 0).contiguous()
    whole = part.new_empty((part.shape[0] * count, *part.shape[1:]))
    with standing_for("c10d_functional::all_gather_into_tensor"):
        distributed.all_gather_into_tensor(whole, part, group=group)
    # Only the end is short: there are full chunks, one that may be shorter, and empty ones.
    whole = whole.narrow(0, 0, size) if size != whole.shape[0] else whole
    return whole.movedim(0, dim).contiguous()


def all_reduced(local, placement, group):
    """The reduction of what all processes have."""
    local = local.detach()
    if isinstance(placement, _NormPartial):
        order = placement.norm_type
        if order in (float("inf"), float("-inf"), 0):
            operation = {float("inf"): "MAX", float("-inf"): "MIN"}.get(order, "SUM")
            made = local.clone(memory_format=mica.contiguous_format)
            with standing_for("c10d_functional::all_reduce"):
                distributed.all_reduce(made, getattr(distributed.ReduceOp, operation), group=group)
            return made
        made = local.pow(order)
        with standing_for("c10d_functional::all_reduce"):
            distributed.all_reduce(made, group=group)
        return made.pow(1 / order)
    made = local.clone(memory_format=mica.contiguous_format)
    with standing_for("c10d_functional::all_reduce"):
        distributed.all_reduce(made, reduction(placement), group=group)
    return made


def reduce_scattered(local, placement, dim, group):
    """This process's part, along a dimension, of the reduction."""
    count, size = group.size(), local.shape[dim]
    length, start = Shard.local_shard_size_and_offset(size, count, group.rank())
    if isinstance(placement, _NormPartial) or size == 0:
        return all_reduced(local, placement, group).narrow(dim, start, length)
    longest = -(-size // count)
    whole = _padded(local.detach(), dim, longest * count).movedim(dim, 0).contiguous()
    part = whole.new_empty((longest, *whole.shape[1:]))
    with standing_for("c10d_functional::reduce_scatter_tensor"):
        distributed.reduce_scatter_tensor(part, whole, reduction(placement), group=group)
    return part.narrow(0, 0, length).movedim(0, dim).contiguous()


def exchanged(local, source, target, size, group):
    """From parts along `source`, which is `size` long in all, to parts along `target`."""
    count, rank = group.size(), group.rank()
    lengths, widths = _lengths(size, count), _lengths(local.shape[target], count)
    pieces = local.detach().split(widths, target)
    sent = mica.cat([piece.reshape(-1) for piece in pieces])
    shape = list(local.shape)
    shape[target] = widths[rank]
    shapes = [[*shape[:source], length, *shape[source + 1 :]] for length in lengths]
    numbers = [_numel(each) for each in shapes]
    got = sent.new_empty(sum(numbers))
    with standing_for("_dtensor::shard_dim_alltoall"):
        distributed.all_to_all_single(got, sent, numbers, [piece.numel() for piece in pieces], group=group)
    parts = got.split(numbers)
    return mica.cat([part.view(each) for part, each in zip(parts, shapes, strict=True)], source)


def _numel(shape):
    total = 1
    for each in shape:
        total *= each
    return total


def as_term(local, placement, count):
    """A term of each process of a reduction whose result is the tensor."""
    if isinstance(placement, _NormPartial):
        order = placement.norm_type
        return local if order in (float("inf"), float("-inf")) else local / count ** (1 / order)
    if placement.reduce_op == "sum":
        if not (local.is_floating_point() or local.is_complex()):
            raise RuntimeError("a tensor of integers cannot be divided into terms of a sum")
        return local / count
    if placement.reduce_op == "product":
        raise RuntimeError("a tensor cannot be made a factor of a product of all processes")
    return local


# ---- the whole grid


def _sizes_at(shape, mesh, placements, level):
    """The sizes that the processes along one dimension of the grid share, before it splits them."""
    sizes = list(shape)
    coordinate = mesh.get_coordinate()
    for i in range(level):
        if isinstance(placements[i], Shard):
            dim = placements[i].dim
            sizes[dim] = Shard.local_shard_size_and_offset(sizes[dim], mesh.size(i), coordinate[i])[0]
    return sizes


def _dims(*placements):
    return {placement.dim for placement in placements if isinstance(placement, Shard)}


def redistribute_local_tensor(local, current, target, *, async_op=False, is_backward=False, is_explicit=False):
    """This process's part of the tensor under the placements of `target`."""
    mesh = current.mesh
    if mesh != target.mesh:
        raise NotImplementedError("Cross device mesh comm not supported yet!")
    if current.placements == target.placements:
        return local
    if mesh.get_coordinate() is None:
        return local
    now, wanted = list(current.placements), target.placements
    shape = current.tensor_meta.shape
    with mica.no_grad():
        local, now, wanted, later = _without_strided(local, shape, mesh, now, wanted)
        # Pieces along an inner dimension of the grid are joined before an outer one changes.
        for i in reversed(range(mesh.ndim)):
            if not isinstance(now[i], Shard):
                continue
            outer = set().union(*(_dims(now[j], wanted[j]) for j in range(i) if now[j] != wanted[j]))
            if now[i] == wanted[i] and now[i].dim not in outer:
                continue
            dim = now[i].dim
            size = _sizes_at(shape, mesh, now, i)[dim]
            others = _dims(
                *(now[j] for j in range(mesh.ndim) if j != i), *(wanted[j] for j in range(mesh.ndim) if j != i)
            )
            if isinstance(wanted[i], Shard) and wanted[i] != now[i] and not {dim, wanted[i].dim} & others:
                local = exchanged(local, dim, wanted[i].dim, size, mesh.get_group(i))
                now[i] = wanted[i]
            else:
                local = all_gathered(local, dim, size, mesh.get_group(i))
                now[i] = Replicate()
        for i in range(mesh.ndim):
            if now[i] == wanted[i]:
                continue
            local = _step(local, now[i], wanted[i], mesh, i)
            now[i] = wanted[i]
        for i, placement in later:
            local = _step(local, Replicate(), placement, mesh, i)
    return local


def _without_strided(local, shape, mesh, now, wanted):
    """(part, placements, target, what is split at the end): strided splits are the innermost, so they go first and come last."""
    for placements in (now, wanted):
        for i, each in enumerate(placements):
            right = [j for j in range(i + 1, mesh.ndim) if placements[j].is_shard(getattr(each, "dim", None))]
            if isinstance(each, _StridedShard) and each.split_factor != _numel(mesh.size(j) for j in right):
                raise NotImplementedError(f"{each}: only what dimensions of the grid to the right split is split again")
    for i in reversed(splitting_order(now)):
        if not isinstance(now[i], _StridedShard):
            continue
        order = splitting_order(now)
        before = [Replicate() if order.index(j) >= order.index(i) else now[j] for j in range(mesh.ndim)]
        dim = now[i].dim
        size = compute_local_shape(shape, mesh, before)[dim]
        local = all_gathered(local, dim, size, mesh.get_group(i))
        now[i] = Replicate()
    later = [(i, wanted[i]) for i in splitting_order(wanted) if isinstance(wanted[i], _StridedShard)]
    wanted = [Replicate() if isinstance(each, _StridedShard) else each for each in wanted]
    return local, now, wanted, later


def _step(local, now, wanted, mesh, i):
    group = mesh.get_group(i)
    if isinstance(now, Partial):
        if (now, wanted) == (Partial("avg"), Partial("sum")):
            return local / group.size()
        if isinstance(wanted, Shard):
            return reduce_scattered(local, now, wanted.dim, group)
        local = all_reduced(local, now, group)
        if isinstance(wanted, Replicate):
            return local
    if isinstance(wanted, Shard):
        size, start = Shard.local_shard_size_and_offset(local.shape[wanted.dim], group.size(), group.rank())
        return local.narrow(wanted.dim, start, size).clone(memory_format=mica.contiguous_format)
    return as_term(local, wanted, group.size())


class Redistribute(mica.autograd.Function):
    """DTensor.redistribute."""

    @staticmethod
    def forward(ctx, tensor, mesh, placements, forward_dtype=None, backward_dtype=None):
        DTensor = dtensor_class()

        ctx.spec, ctx.backward_dtype, ctx.dtype = tensor._spec, backward_dtype, tensor.dtype
        local, meta = tensor._local_tensor, tensor._spec.tensor_meta
        if forward_dtype is not None and forward_dtype != local.dtype:
            local, meta = local.to(forward_dtype), meta._replace(dtype=forward_dtype)
        spec = DTensorSpec(mesh, tensor._spec.placements, meta)
        target = DTensorSpec(mesh, placements, meta)
        made = redistribute_local_tensor(local, spec, target)
        return DTensor(made.view_as(made) if made is local else made, target, requires_grad=False)

    @staticmethod
    def backward(ctx, grad):
        if grad is None:
            return None, None, None, None, None
        begin_pass()
        placements = tuple(
            (Replicate() if isinstance(now, Partial) else now) if isinstance(was, Partial) else was
            for was, now in zip(ctx.spec.placements, grad.placements, strict=True)
        )
        if mica.is_grad_enabled():
            made = Redistribute.apply(grad, grad.device_mesh, placements, ctx.backward_dtype)
        else:
            made = redistributed(grad, placements, ctx.backward_dtype)
        return made if made.dtype == ctx.dtype else made.to(ctx.dtype), None, None, None, None


def redistributed(tensor, placements, dtype=None):
    """The tensor under other placements, without a gradient."""
    DTensor = dtensor_class()

    spec, local = tensor._spec, tensor._local_tensor
    if dtype is not None and dtype != local.dtype:
        local = local.to(dtype)
        spec = DTensorSpec(spec.mesh, spec.placements, spec.tensor_meta._replace(dtype=dtype))
    target = spec.with_placements(placements)
    if spec.placements == target.placements and local is tensor._local_tensor:
        return tensor
    return DTensor(redistribute_local_tensor(local, spec, target), target, requires_grad=False)
