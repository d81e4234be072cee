"""Devices in a grid, over which work is spread: of one device."""

import math

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """A grid of devices with names for its dimensions. Mica's has one device."""

    def __init__(self, device_type, mesh, *, mesh_dim_names=None, **options):
        import mica

        self.device_type = device_type
        self.mesh = mica.as_tensor(mesh, dtype=mica.int64)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self.mesh.numel() != 1:
            raise NotImplementedError(
                f"a mesh of {self.mesh.numel()} devices is not in Mica: it computes in one process"
            )

    @property
    def shape(self):
        return tuple(self.mesh.shape)

    @property
    def ndim(self):
        return self.mesh.dim()

    def size(self, mesh_dim=None):
        return self.mesh.numel() if mesh_dim is None else self.mesh.size(mesh_dim)

    def get_rank(self):
        return 0

    def get_local_rank(self, mesh_dim=None):
        return 0

    def get_coordinate(self):
        return [0] * self.ndim

    def get_group(self, mesh_dim=None):
        from mica.distributed import group

        return group.WORLD

    def get_all_groups(self):
        return [self.get_group()] * self.ndim

    def _dimension(self, name):
        if self.mesh_dim_names is None or name not in self.mesh_dim_names:
            raise KeyError(f"Invalid mesh_dim_name {name!r}: the mesh has {self.mesh_dim_names}")
        return self.mesh_dim_names.index(name)

    def __getitem__(self, names):
        names = (names,) if isinstance(names, str) else tuple(names)
        for name in names:
            self._dimension(name)
        return DeviceMesh(self.device_type, self.mesh.reshape([1] * len(names)), mesh_dim_names=names)

    def _flatten(self, mesh_dim_name=None):
        return DeviceMesh(self.device_type, self.mesh.reshape(1), mesh_dim_names=(mesh_dim_name or "flat",))

    def __eq__(self, other):
        return isinstance(other, DeviceMesh) and (self.device_type, self.shape, self.mesh_dim_names) == (
            other.device_type, other.shape, other.mesh_dim_names)  # fmt: skip

    def __hash__(self):
        return hash((self.device_type, self.shape, self.mesh_dim_names))

    def __repr__(self):
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}, mesh_dim_names={self.mesh_dim_names})"


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, **options):
    """A grid of devices of a shape. The group of processes is started if it is not."""
    from mica import distributed, zeros

    if math.prod(mesh_shape) != 1:
        raise NotImplementedError(
            f"a mesh of {math.prod(mesh_shape)} devices is not in Mica: it computes in one process"
        )
    if not distributed.is_initialized():
        distributed.init_process_group()
    return DeviceMesh(device_type, zeros(tuple(mesh_shape), dtype=None).long(), mesh_dim_names=mesh_dim_names)
