"""Spreading tensors and modules over a grid of processes."""

import mica
from mica import distributed
from mica.distributed.tensor._api import DTensor, _current_mesh, _on_device
from mica.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta, contiguous_strides
from mica.distributed.tensor._utils import normalize_placements
from mica.distributed.tensor.placement_types import Replicate, Shard


def distribute_tensor(tensor, device_mesh=None, placements=None, *, src_data_rank=0):
    """The tensor of the process `src_data_rank` of each group, spread over a grid. With None, every process has the same
    tensor already."""
    mesh = _current_mesh(device_mesh)
    placements = normalize_placements(placements, mesh, tensor.dim())
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(
                f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}."
            )
        if tensor.placements != placements:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements {placements}. "
                "do you want to call `redistribute` instead?"
            )
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    meta = TensorMeta(tuple(tensor.shape), contiguous_strides(tensor.shape), tensor.dtype)
    if tensor.is_contiguous():
        meta = meta._replace(stride=tuple(tensor.stride()))
    local = _on_device(tensor.detach(), mesh)
    spec = DTensorSpec(mesh, placements, meta)
    if mesh.get_coordinate() is None:
        return DTensor(local.new_empty(0), spec, requires_grad=tensor.requires_grad)
    with mica.no_grad():
        for dim, placement in enumerate(placements):
            if isinstance(placement, Shard):
                local = _scattered(local, placement, mesh, dim, src_data_rank)
            elif isinstance(placement, Replicate):
                local = local.clone(memory_format=mica.contiguous_format)
                if src_data_rank is not None and mesh.size(dim) > 1 and not local.is_meta:
                    distributed.broadcast(local, group=mesh.get_group(dim), group_src=src_data_rank)
            else:
                raise RuntimeError(
                    f"Trying to distribute tensor with unsupported placements {placement} on device mesh dimension {dim}!"
                )
    if local is tensor or local.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
        local = local.clone()
    return DTensor(local, spec, requires_grad=tensor.requires_grad)


def _scattered(local, placement, mesh, dim, source):
    """A process's part of the source's tensor along one dimension of the grid."""
    group, count = mesh.get_group(dim), mesh.size(dim)
    size, start = Shard.local_shard_size_and_offset(local.shape[placement.dim], count, group.rank())
    part = local.narrow(placement.dim, start, size).contiguous()
    if source is None or count == 1 or local.is_meta:
        return part
    pieces, pads = placement._split_tensor(local, count, with_padding=True, contiguous=True)
    made = mica.empty_like(pieces[group.rank()])
    distributed.scatter(made, pieces if group.rank() == source else None, group=group, group_src=source)
    return made.narrow(placement.dim, 0, size).contiguous() if pads[group.rank()] else made


def distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """Make the parameters and buffers of a module spread tensors: as partition_fn says, and copies otherwise."""
    mesh = _current_mesh(device_mesh)
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError(
            "distribute_module should only be called once on a module, but it has already been called on this module!"
        )
    for name, each in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, each, mesh)
        _replicate(each, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda mod, inputs: input_fn(mod, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda mod, inputs, outputs: output_fn(mod, outputs, mesh))
    module._distribute_module_applied = True
    return module


def _replicate(module, mesh):
    whole = [Replicate()] * mesh.ndim
    for key, parameter in list(module._parameters.items()):
        if parameter is not None and not isinstance(parameter, DTensor):
            made = distribute_tensor(parameter.detach(), mesh, whole)
            module.register_parameter(key, mica.nn.Parameter(made, requires_grad=parameter.requires_grad))
    for key, buffer in list(module._buffers.items()):
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[key] = distribute_tensor(buffer, mesh, whole)
