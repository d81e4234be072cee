"""Which part of a spread tensor a process has."""

import dataclasses

from mica import _C
from mica.distributed.tensor.placement_types import Shard, splitting_order


def _compute_local_shape_and_global_offset(global_shape, mesh_shape, my_coordinate, placements):
    """(sizes, where they begin) of the part of the process at a place of the grid.

    Dimensions of the grid that split the same dimension of the tensor split it one after the other.
    """
    shape, offset = list(global_shape), [0] * len(global_shape)
    for i in splitting_order(placements):
        placement = placements[i]
        if isinstance(placement, Shard):
            size, start = Shard.local_shard_size_and_offset(shape[placement.dim], mesh_shape[i], my_coordinate[i])
            if size == 0:  # an empty part begins at the end
                offset[placement.dim] = global_shape[placement.dim]
            else:
                offset[placement.dim] += start
            shape[placement.dim] = size
    return tuple(shape), tuple(offset)


def compute_local_shape_and_global_offset(global_shape, mesh, placements, skip_offset=False):
    """(sizes, where they begin) of this process's part of a tensor."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), ()
    return _compute_local_shape_and_global_offset(global_shape, mesh.shape, coordinate, placements)


def compute_local_shape(global_shape, mesh, placements):
    return compute_local_shape_and_global_offset(global_shape, mesh, placements)[0]


def compute_global_tensor_info(tensor, mesh, placements):
    """(sizes, strides) of the whole tensor, if all processes have parts like this one's."""
    shape, strides = list(tensor.shape), list(tensor.stride())
    for i, placement in enumerate(placements):
        if not isinstance(placement, Shard):
            continue
        dim = placement.dim
        if dim < 0:
            raise AssertionError(
                f"Shard placements should have negative dims normalized in the user-facing APIs: {placement}"
            )
        if dim >= tensor.dim():
            raise AssertionError(
                f"Sharding dim {dim} greater than tensor ndim {tensor.dim()} for placement number {i}."
            )
        step = strides[dim]
        shape[dim] *= mesh.size(i)
        for d in range(len(strides)):
            # Dimensions that lie outside of the split one in memory get other strides.
            if d != dim and strides[d] >= step:
                strides[d] *= mesh.size(i)
    return shape, strides


def normalize_placements(placements, mesh, ndim):
    """Placements for every dimension of the grid, with dimensions of the tensor counted from its first."""
    from mica.distributed.tensor.placement_types import Placement, Replicate

    if placements is None:
        return (Replicate(),) * mesh.ndim
    placements = tuple(placements)
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(placements)}, "
            f"and device_mesh.ndim: {mesh.ndim}."
        )
    made = []
    for placement in placements:
        if not isinstance(placement, Placement):
            raise RuntimeError(f"Unknown placement type: {placement!r}")
        if isinstance(placement, Shard):
            dim = placement.dim + ndim if placement.dim < 0 else placement.dim
            if not 0 <= dim < ndim:
                raise IndexError(f"Shard dim {placement.dim} is out of range for a tensor of {ndim} dimensions")
            placement = placement if dim == placement.dim else dataclasses.replace(placement, dim=dim)
        made.append(placement)
    return tuple(made)


def filled(value, tensors):
    """The value with its tensors replaced, one after the other."""
    if isinstance(value, _C.TensorBase):
        return next(tensors)
    if isinstance(value, (list, tuple)):
        return [filled(each, tensors) for each in value]
    return value


def refilled(args, kwargs, tensors):
    """Arguments of a call with these tensors in the place of its own."""
    given = iter(tensors)
    args = filled(list(args), given)
    return args, {name: filled(value, given) for name, value in kwargs.items()}
