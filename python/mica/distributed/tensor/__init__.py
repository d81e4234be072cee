"""Tensors that are spread over a grid of processes: docs/sharding.md says how."""

from mica.distributed.device_mesh import DeviceMesh, init_device_mesh
from mica.distributed.tensor._api import DTensor
from mica.distributed.tensor._distribute import distribute_module, distribute_tensor
from mica.distributed.tensor._factories import empty, full, ones, rand, randn, zeros
from mica.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor",
    "empty", "full", "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip
