"""How a tensor is spread over devices: as values, to be named."""

import dataclasses

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """How a tensor is spread over one dimension of a mesh."""

    def is_shard(self, dim=None):
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self):
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op=None):
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclasses.dataclass(frozen=True)
class Shard(Placement):
    """Each device has a part along a dimension."""

    dim: int = 0

    @staticmethod
    def local_shard_size_and_offset(curr_local_size, num_chunks, rank):
        """The size of the part of a device, and where it begins."""
        chunk = -(-curr_local_size // num_chunks)
        start = min(chunk * rank, curr_local_size)
        return min(chunk, curr_local_size - start), start


@dataclasses.dataclass(frozen=True)
class _StridedShard(Shard):
    split_factor: int = 1


@dataclasses.dataclass(frozen=True)
class Replicate(Placement):
    """Each device has all of it."""


@dataclasses.dataclass(frozen=True)
class Partial(Placement):
    """Each device has a term of a sum."""

    reduce_op: str = "sum"


_Partial = Partial
