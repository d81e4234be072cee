"""What is known of a spread tensor without its elements: the grid, the placements, sizes, strides and dtype."""

from typing import NamedTuple

from mica.distributed.tensor.placement_types import Partial, Replicate, Shard

_classes = []


def the_class(cls):
    """Tells the modules that DTensor itself needs which class to make."""
    _classes.append(cls)
    return cls


def dtensor_class():
    """The class DTensor, for modules that DTensor needs and which therefore cannot import it."""
    return _classes[0]


class TensorMeta(NamedTuple):
    """Sizes, strides and dtype of the whole tensor."""

    shape: tuple
    stride: tuple
    dtype: object


class DTensorSpec:
    """A placement for each dimension of a grid, and what the whole tensor looks like."""

    __slots__ = ("_hash", "mesh", "placements", "tensor_meta")

    def __init__(self, mesh, placements, tensor_meta=None):
        self.mesh, self.placements, self.tensor_meta = mesh, tuple(placements), tensor_meta
        self._hash = None

    device_mesh = property(lambda self: self.mesh)
    shape = property(lambda self: self.tensor_meta.shape)
    stride = property(lambda self: self.tensor_meta.stride)
    ndim = property(lambda self: len(self.tensor_meta.shape))
    num_shards = property(
        lambda self: _product(self.mesh.size(i) for i, p in enumerate(self.placements) if isinstance(p, Shard))
    )

    @property
    def dim_map(self):
        """For each dimension of the tensor the dimension of the grid that it is spread over, or -1."""
        found = [-1] * self.ndim
        for i, placement in enumerate(self.placements):
            if isinstance(placement, Shard):
                found[placement.dim] = i
        return found

    @property
    def sums(self):
        return [i for i, placement in enumerate(self.placements) if isinstance(placement, Partial)]

    def is_replicated(self):
        return all(isinstance(placement, Replicate) for placement in self.placements)

    def is_sharded(self):
        return any(isinstance(placement, Shard) for placement in self.placements)

    def with_placements(self, placements):
        return DTensorSpec(self.mesh, placements, self.tensor_meta)

    def __eq__(self, other):
        return self is other or (
            isinstance(other, DTensorSpec)
            and (self.mesh, self.placements, self.tensor_meta) == (other.mesh, other.placements, other.tensor_meta)
        )

    def __hash__(self):
        if self._hash is None:
            self._hash = hash((self.mesh, self.placements, self.tensor_meta))
        return self._hash

    def __repr__(self):
        text = "".join(str(placement) for placement in self.placements)
        shape = tuple(self.tensor_meta.shape) if self.tensor_meta is not None else "unknown shape"
        return f"Spec({text} on {shape})"


def _product(values):
    total = 1
    for each in values:
        total *= each
    return total


def contiguous_strides(shape):
    """The strides of a row-major tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
