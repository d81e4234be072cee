"""Pieces of parameters as spread tensors, also of those that are spread over another dimension of the grid already."""

from mica.distributed.tensor import DTensor, Replicate, Shard
from mica.distributed.tensor._dtensor_spec import DTensorSpec
from mica.distributed.tensor.placement_types import _StridedShard


def spread_like(local, spec):
    """A tensor's part on this process as the tensor, in the dtype of the part."""
    meta = spec.tensor_meta._replace(dtype=local.dtype)
    return DTensor(local, DTensorSpec(spec.mesh, spec.placements, meta), requires_grad=False)


def wrapping(parameter, mesh, dim):
    """A function that makes a spread tensor of this process's piece of a parameter, cut along `dim` over the grid."""
    spec = getattr(parameter, "_spec", None)
    if spec is None:
        placements = [Replicate()] * (mesh.ndim - 1) + [Shard(dim)]
        shape, stride = parameter.shape, parameter.detach().contiguous().stride()
        return lambda piece: DTensor.from_local(piece, mesh, placements, run_check=False, shape=shape, stride=stride)
    grid, placements = _both(mesh, spec, dim)

    def wrap(piece):
        meta = spec.tensor_meta._replace(dtype=piece.dtype)
        return DTensor(piece, DTensorSpec(grid, placements, meta), requires_grad=False)

    return wrap


def _both(mesh, spec, dim):
    """(the grid of both, placements): what is cut along a dimension that is split already is split by that first."""
    root = mesh._get_root_mesh()
    names = (*(mesh.mesh_dim_names or ()), *(spec.mesh.mesh_dim_names or ()))
    if root is not spec.mesh._get_root_mesh() or len(names) != mesh.ndim + spec.mesh.ndim:
        raise ValueError(
            "fully_shard of a DTensor needs a mesh that is a slice of the same root mesh as the DTensor's, and names of both: "
            f"mesh {mesh}, and {spec.mesh} of the parameter"
        )
    if any(placement.is_partial() for placement in spec.placements):
        raise ValueError(f"fully_shard of a DTensor with placements {spec.placements}: a parameter must not be partial")
    parts = 1
    for i, placement in enumerate(spec.placements):
        if placement.is_shard(dim):
            parts *= spec.mesh.size(i)
    cut = Shard(dim) if parts == 1 else _StridedShard(dim, split_factor=parts)
    return root[names], (*[Replicate()] * (mesh.ndim - 1), cut, *spec.placements)
