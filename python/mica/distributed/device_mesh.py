"""Ranks in a grid, over which work is spread: each dimension of the grid has groups of its own."""

import itertools
import math
import threading

import mica
from mica.distributed.groups import init_process_group
from mica.distributed.process_group import ProcessGroup
from mica.distributed.subgroups import new_group
from mica.distributed.world import (
    _get_default_group,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    is_initialized,
)

__all__ = ["DeviceMesh", "init_device_mesh"]


class _Current(threading.local):
    """The meshes whose with blocks this thread is in."""

    def __init__(self):
        self.mesh_stack = []

    def get_current_mesh(self):
        if not self.mesh_stack:
            raise RuntimeError("No device mesh is currently active!")
        return self.mesh_stack[-1]


_mesh_resources = _Current()


class DeviceMesh:
    """A grid of ranks with names for its dimensions. Every rank of the world makes it, with the same ranks.

    A slice of a mesh (`mesh["tp"]`) is a mesh too: of those dimensions, through this rank. It knows the mesh that it is
    a slice of, its root, and shares the root's groups.
    """

    def __init__(
        self, device_type, mesh, *, mesh_dim_names=None, backend_override=None, _init_backend=True, _rank=None,
        _root_mesh=None, _dims=None, _groups=None,
    ):  # fmt: skip
        self._device_type = str(device_type)
        self._names = tuple(mesh_dim_names) if mesh_dim_names else None
        if _root_mesh is not None:
            self._root_mesh, self._dims, self._rank = _root_mesh, _dims, _root_mesh._rank
            self._coordinate = self._find_coordinate()
            return
        whole = mesh if isinstance(mesh, mica.Tensor) else mica.tensor(mesh)
        if whole.device.type != "cpu":
            raise ValueError(f"`mesh` must be a CPU tensor, got {whole}")
        self._root_mesh, self._whole = None, whole.detach().to(mica.int32).contiguous()
        if self._names is not None and len(self._names) != self._whole.dim():
            raise RuntimeError(
                f"mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): {len(self._names)} and len(mesh_shape):{self._whole.dim()}."
            )
        # The dimensions of the root that make up each dimension.
        self._dims = tuple((dim,) for dim in range(self._whole.dim()))
        self._flattened, self._groups = {}, dict(_groups or {})
        if not is_initialized() and _init_backend:
            init_process_group()
        if is_initialized() and self._whole.numel() > get_world_size():
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {get_world_size()}, but found {self._whole.numel()} ranks!"
            )
        self._rank = _rank if _rank is not None else (get_rank() if is_initialized() else 0)
        self._coordinate = self._find_coordinate()
        if _init_backend and not self._groups:
            overrides = backend_override or [None] * self._whole.dim()
            for dim, options in zip(self._dims, overrides, strict=True):
                self._make_groups(dim, self._names[dim[0]] if self._names else str(dim[0]), options)

    # ---- where this rank stands

    def _get_root_mesh(self):
        return self if self._root_mesh is None else self._root_mesh

    def _find_coordinate(self):
        """This rank's place in the root; None if it is not in it."""
        root = self._get_root_mesh()
        found = (root._whole == self._rank).nonzero().tolist()
        if len(found) > 1:
            raise AssertionError(f"rank {self._rank} appears in the mesh more than once")
        self._in_root = found[0] if found else None
        if self._in_root is None:
            return None
        return tuple(self._place(dim) for dim in self._dims)

    def _place(self, dim):
        place = 0
        for each in dim:
            place = place * self._get_root_mesh()._whole.shape[each] + self._in_root[each]
        return place

    @property
    def mesh(self):
        """The ranks, as a tensor: of a slice, those that share this rank's place in the root's other dimensions."""
        whole = self._get_root_mesh()._whole
        if self._root_mesh is None:
            return whole
        used = [each for dim in self._dims for each in dim]
        others = [each for each in range(whole.dim()) if each not in used]
        at = self._in_root if self._in_root is not None else [0] * whole.dim()
        chosen = whole.permute(*others, *used)[tuple(at[each] for each in others)]
        return chosen.reshape(self.shape)

    # ---- groups

    def _rank_lists(self, dim):
        """The ranks of every group along a dimension, in an order that is the same on all ranks."""
        whole = self._get_root_mesh()._whole
        others = [each for each in range(whole.dim()) if each not in dim]
        return whole.permute(*others, *dim).reshape(-1, math.prod(whole.shape[each] for each in dim)).tolist()

    def _make_groups(self, dim, name, options=None):
        root = self._get_root_mesh()
        lists = self._rank_lists(dim)
        if options is None and lists == [list(range(get_world_size()))]:
            root._groups[dim] = _get_default_group()
            return
        backend, pg_options = options if isinstance(options, tuple) else (options, None)
        for ranks in lists:
            made = new_group(ranks, backend=backend, pg_options=pg_options, group_desc=f"mesh_{name}", sort_ranks=False)
            if self._rank in ranks:
                root._groups[dim] = made

    def get_group(self, mesh_dim=None):
        """The group of this rank along a dimension."""
        if self.ndim > 1 and mesh_dim is None:
            raise RuntimeError(
                f"Found the DeviceMesh have {self.ndim} dimensions",
                "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
                "If you want to get the list of all the ProcessGroups in the DeviceMesh,please use `get_all_groups()` instead.",
            )
        dim = self._dims[0 if mesh_dim is None else self._index(mesh_dim)]
        groups = self._get_root_mesh()._groups
        if not groups:
            raise RuntimeError("DeviceMesh process groups not initialized!")
        return groups.get(dim)

    def get_all_groups(self):
        """The groups of this rank along all dimensions."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    @classmethod
    def from_group(cls, group, device_type, mesh=None, *, mesh_dim_names=None):
        """A mesh of groups that are there already, one for each dimension."""
        if isinstance(group, ProcessGroup):
            ranks = get_process_group_ranks(group)
            if mesh is not None and mica.as_tensor(mesh).flatten().tolist() != ranks:
                raise ValueError(f"Invalid mesh {mesh} for ProcessGroup with ranks {ranks}")
            return cls(device_type, ranks, mesh_dim_names=mesh_dim_names, _groups={(0,): group})
        groups = list(group)
        if not groups:
            raise ValueError("Expects at least one ProcessGroup to be passed")
        if mesh is None:
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        mesh = mesh if isinstance(mesh, mica.Tensor) else mica.tensor(mesh)
        if mesh.dim() != len(groups):
            raise ValueError(
                f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {mesh.tolist()} and {len(groups)} ProcessGroups"
            )
        made = {(dim,): each for dim, each in enumerate(groups)}
        return cls(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=made)

    # ---- asking

    @property
    def device_type(self):
        """The type of the devices that the ranks compute on."""
        return self._device_type

    @property
    def mesh_dim_names(self):
        """The names of the dimensions, or None."""
        return self._names

    @property
    def shape(self):
        """The number of ranks along each dimension."""
        whole = self._get_root_mesh()._whole
        return tuple(math.prod(whole.shape[each] for each in dim) for dim in self._dims)

    @property
    def ndim(self):
        """The number of dimensions."""
        return len(self._dims)

    def size(self, mesh_dim=None):
        """The number of ranks, of all or along a dimension."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[self._index(mesh_dim)]

    def get_rank(self):
        """This process's rank in the world."""
        return get_rank()

    def get_local_rank(self, mesh_dim=None):
        """This rank's place along a dimension."""
        if self.ndim > 1 and mesh_dim is None:
            raise RuntimeError(
                f"Found the DeviceMesh have {self.ndim} dimensions",
                "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
            )
        if self._coordinate is None:
            raise RuntimeError(f"rank {self._rank} is not in the mesh")
        return self._coordinate[0 if mesh_dim is None else self._index(mesh_dim)]

    def get_coordinate(self):
        """This rank's place along all dimensions; None if it is not in the mesh."""
        return self._coordinate

    def _is_current_rank_part_of_mesh(self):
        return self._coordinate is not None

    def _sym_get_coordinate(self, index):
        return self._coordinate[index]

    def _index(self, mesh_dim):
        if isinstance(mesh_dim, str):
            return self._get_mesh_dim_by_name(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"mesh dimension {mesh_dim} is out of range for a mesh of {self.ndim} dimensions")
        return mesh_dim % self.ndim

    def _get_mesh_dim_by_name(self, name):
        if not self._names:
            raise KeyError(
                f"No `mesh_dim_names` found. The mesh was made without names, so that {name!r} is none of them"
            )
        if name not in self._names:
            raise KeyError(
                f"Mesh dimension '{name}' does not exist.Available mesh dimensions are: mesh_dim_names={self._names}"
            )
        return self._names.index(name)

    # ---- slices

    def __getitem__(self, mesh_dim_names):
        if not self._names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self._names:
            return self
        root = self._get_root_mesh()
        known = {**dict(zip(self._names, self._dims, strict=True)), **root._flattened}
        if any(name not in known for name in names):
            raise KeyError(f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are {list(known)}.")
        dims = tuple(known[name] for name in names)
        order = [each for dim in dims for each in dim]
        if order != sorted(set(order)):
            raise KeyError(f"Invalid mesh_dim_names {names} specified. Mesh dim indices should be in ascending order.")
        return DeviceMesh(self._device_type, None, mesh_dim_names=names, _root_mesh=root, _dims=dims)

    def _flatten(self, mesh_dim_name=None, backend_override=None):
        """Joins the dimensions into one, which has groups of its own. The root mesh knows it by its name from now on."""
        root = self._get_root_mesh()
        if mesh_dim_name is None:
            if not self._names:
                raise RuntimeError("Cannot flatten a DeviceMesh without mesh_dim_names!")
            mesh_dim_name = "_".join(self._names)
        dim = tuple(itertools.chain.from_iterable(self._dims))
        if mesh_dim_name in (root._names or ()) and self.ndim > 1:
            raise ValueError(
                f"{mesh_dim_name} already exists for submesh of the root mesh: {root}. Choose another name"
            )
        if dim not in root._groups and is_initialized():
            self._make_groups(dim, mesh_dim_name, backend_override)
        if self.ndim > 1 or mesh_dim_name not in (self._names or ()):
            root._flattened[mesh_dim_name] = dim
        return DeviceMesh(self._device_type, None, mesh_dim_names=(mesh_dim_name,), _root_mesh=root, _dims=(dim,))

    def _get_all_submeshes(self, mesh_dim_name):
        """The meshes of one dimension at every place of the other dimensions."""
        dim = self._dims[self._get_mesh_dim_by_name(mesh_dim_name)]
        return [
            DeviceMesh(self._device_type, ranks, mesh_dim_names=(mesh_dim_name,), _init_backend=False)
            for ranks in self._rank_lists(dim)
        ]

    # ---- as a value

    def _key(self):
        root = self._get_root_mesh()
        return (
            self._device_type,
            tuple(root._whole.flatten().tolist()),
            tuple(root._whole.shape),
            self._dims,
            self._names,
        )

    def __eq__(self, other):
        return self is other or (isinstance(other, DeviceMesh) and self._key() == other._key())

    def __hash__(self):
        return hash(self._key())

    def __enter__(self):
        _mesh_resources.mesh_stack.append(self)
        return self

    def __exit__(self, *error):
        _mesh_resources.mesh_stack.pop()

    def __reduce__(self):
        root = self._get_root_mesh()
        return _rebuild, (self._device_type, root._whole.tolist(), root._names, self._dims, self._names)

    def __repr__(self):
        strides = mica.empty(tuple(self._get_root_mesh()._whole.shape), device="meta").stride()
        stride = tuple(strides[dim[-1]] for dim in self._dims)
        if self._names:
            shape = "(" + ", ".join(f"{name}={size}" for name, size in zip(self._names, self.shape, strict=True)) + ")"
        else:
            shape = repr(self.shape)
        return f"DeviceMesh({shape}, {self._device_type!r}, stride={stride})"


def _rebuild(device_type, whole, root_names, dims, names):
    root = DeviceMesh(device_type, whole, mesh_dim_names=root_names, _init_backend=False)
    if dims == root._dims:
        return root
    return DeviceMesh(device_type, None, mesh_dim_names=names, _root_mesh=root, _dims=dims)


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, backend_override=None):
    """A grid of the ranks from 0 on. The world is started if it is not."""
    mesh_shape = tuple(mesh_shape)
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(
                f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}"
            )
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(
                f"mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}."
            )
    if device_type and not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. ",
            "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.",
        )
    overrides = None
    if backend_override:
        named = {name: index for index, name in enumerate(mesh_dim_names or ())}
        overrides = [None] * len(mesh_shape)
        for dim, options in backend_override.items():
            overrides[named[dim] if isinstance(dim, str) else dim] = options
    ranks = mica.arange(math.prod(mesh_shape), dtype=mica.int32).reshape(mesh_shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, backend_override=overrides)


def _get_device_handle(device_type="cuda"):
    """The module of a device type."""
    return getattr(mica, device_type, None)
