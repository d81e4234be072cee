"""Grids of processes, by the name that they had here first."""

from mica.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
