"""Tensors that are spread over devices. Mica has one device at work: the ways to spread can be named."""

from mica._as_torch.absent import placeholder as _placeholder
from mica.distributed.device_mesh import DeviceMesh, init_device_mesh
from mica.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor",
           "init_device_mesh"]  # fmt: skip

DTensor = _placeholder("distributed.tensor", "DTensor", "class")
distribute_tensor = _placeholder("distributed.tensor", "distribute_tensor", "function")
distribute_module = _placeholder("distributed.tensor", "distribute_module", "function")
