"""Tensors spread over a mesh of ranks, as far as a checkpoint looks at them."""

import mica


class Placement:
    def __init__(self, dim):
        self.dim = dim

    def is_shard(self):
        return self.dim is not None

    def is_partial(self):
        return False


class Mesh:
    def __init__(self, sizes, coordinate):
        self.sizes, self.coordinate = sizes, coordinate

    def size(self, dim):
        return self.sizes[dim]

    def get_coordinate(self):
        return self.coordinate


class Spread(mica.Tensor):
    """A tensor spread over a mesh, as far as a checkpoint looks at it."""

    @staticmethod
    def __new__(cls, local, size, mesh, placements):
        made = mica.empty(size, device="meta").as_subclass(cls)
        made.local, made.device_mesh, made.placements = local, mesh, placements
        return made

    def to_local(self):
        return self.local


def parts_of(whole, sizes, dims):
    """The tensors of all ranks of a mesh, each with its own part of the whole."""
    made = []
    for first in range(sizes[0]):
        for second in range(sizes[1]):
            local = whole
            for parts, place, dim in zip(sizes, (first, second), dims, strict=True):
                if dim is not None:
                    most = -(-local.size(dim) // parts)
                    begin = min(most * place, local.size(dim))
                    local = local.narrow(dim, begin, min(most, local.size(dim) - begin))
            mesh = Mesh(sizes, (first, second))
            made.append(Spread(local.clone(), whole.shape, mesh, [Placement(dim) for dim in dims]))
    return made
