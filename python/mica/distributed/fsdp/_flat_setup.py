"""What FullyShardedDataParallel settles when it wraps a module: what it leaves alone, its groups, its device, its parameters.

`wrapper` is the class FullyShardedDataParallel, whose module imports this one.
"""

import os
import warnings

import mica
from mica import nn
from mica.distributed.fsdp._flat_parameters import FlatParameter
from mica.distributed.fsdp._fully_shard import _compute_device
from mica.distributed.fsdp.api import ShardingStrategy

HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


def ignored_of(module, modules, states, wrapper):
    """The (modules, parameters) that are left alone."""
    if modules is not None and states is not None:
        raise ValueError(
            "Cannot pass both ignored_modules and ignored_states at the same time. Please just pass ignored_states."
        )
    given = list(modules or ()) + list(states or ())
    chosen = [each for each in given if isinstance(each, nn.Module)]
    for each in chosen:
        if isinstance(each, wrapper):
            raise ValueError("`ignored_modules` should not include FSDP modules")
    inside = {below for each in chosen for below in each.modules()}
    for each in module.modules():
        if isinstance(each, wrapper):
            inside |= {below for below in each._ignored_modules if not isinstance(below, wrapper)}
    if module in inside:
        warnings.warn("Trying to ignore the top-level module passed into the FSDP constructor itself", stacklevel=3)
    parameters = {each for each in given if isinstance(each, mica.Tensor)}
    return inside, parameters | {parameter for each in inside for parameter in each.parameters()}


def groups_for(process_group, strategy, mesh):
    """(the group that parameters are cut over, the group of replicas or None)"""
    from mica.distributed import get_world_size, new_group
    from mica.distributed.world import _get_default_group

    if mesh is not None:
        if process_group is not None:
            raise ValueError("Cannot pass both process_group and device_mesh at the same time.")
        if strategy in HYBRID:
            if mesh.ndim != 2:
                raise ValueError(f"Expected device_mesh to have ndim=2 but got {mesh.ndim}")
            return mesh.get_group(1), mesh.get_group(0)
        return mesh.get_group(0), None
    if strategy not in HYBRID:
        return process_group or _get_default_group(), None
    if isinstance(process_group, tuple):
        return process_group
    if process_group is not None:
        raise ValueError(
            f"Expected process_group to be passed in as either None or Tuple but got {type(process_group)}"
        )
    world = get_world_size()
    here = min(int(os.environ.get("LOCAL_WORLD_SIZE", world)), world)
    rank, mine, others = mica.distributed.get_rank(), None, None
    for first in range(0, world, here):
        made = new_group(list(range(first, min(first + here, world))))
        mine = made if first <= rank < first + here else mine
    for place in range(here):
        made = new_group(list(range(place, world, here)))
        others = made if rank % here == place else others
    return mine, others


def move(module, device_id, init, ignored, ignored_parameters, wrapper):
    """Bring the module to the device that it computes on, and give memory to parameters that have none. Returns the device."""
    device = _compute_device([module])
    if device_id is not None:
        device = device_id if isinstance(device_id, mica.device) else mica.device("cuda", device_id)
        device = mica.device("cpu") if device.type == "cpu" else device
    for inside in module.modules():
        if inside in ignored or isinstance(inside, wrapper):
            continue
        own = [*inside._parameters.values(), *inside._buffers.values()]
        if any(each is not None and each.is_meta and not isinstance(each, FlatParameter) for each in own):
            if init is not None:
                init(inside)
            else:
                inside.to_empty(device=device, recurse=False)
                inside.reset_parameters()
        if device_id is not None:
            for tensor in inside._parameters.values():
                if tensor is not None and tensor not in ignored_parameters and not isinstance(tensor, FlatParameter):
                    tensor.data = tensor.data.to(device)
            for name, buffer in inside._buffers.items():
                inside._buffers[name] = buffer if buffer is None else buffer.to(device)
    return device


def owned_parameters(module, ignored, ignored_parameters, wrapper):
    """Parameters that no wrapped module inside has: each once, with all its places and its names in the module."""
    found = {}

    def visit(inside, prefix):
        for name, parameter in inside._parameters.items():
            if parameter is None or parameter in ignored_parameters:
                continue
            found.setdefault(id(parameter), (parameter, []))[1].append((inside, name, prefix + name))
        for name, child in inside.named_children():
            if child not in ignored and not isinstance(child, wrapper):
                visit(child, f"{prefix}{name}.")

    visit(module, "")
    return list(found.values())
