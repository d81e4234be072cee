"""How a tensor is spread over one dimension of a grid of processes."""

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
    """Each process has a part along a dimension: the chunks of torch.chunk, of which the last may be short or empty."""

    dim: int = 0

    @staticmethod
    def local_shard_size_and_offset(curr_local_size, num_chunks, rank):
        """The size of the part of a process, and where it begins."""
        chunk = -(-curr_local_size // num_chunks)
        start = min(chunk * rank, curr_local_size)
        return min(chunk, curr_local_size - start), start

    def _split_tensor(self, tensor, num_chunks, *, with_padding=True, contiguous=True):
        """(a part for each process, how much padding each has to be as long as the first)"""
        import mica

        size = tensor.shape[self.dim]
        parts, pads = [], []
        longest = -(-size // num_chunks)
        for rank in range(num_chunks):
            length, start = Shard.local_shard_size_and_offset(size, num_chunks, rank)
            part = tensor.narrow(self.dim, start, length)
            if with_padding and length < longest:
                shape = list(part.shape)
                shape[self.dim] = longest - length
                part = mica.cat([part, part.new_zeros(shape)], self.dim)
            parts.append(part.contiguous() if contiguous else part)
            pads.append(longest - length)
        return parts, pads if with_padding else []

    def __str__(self):
        return f"S({self.dim})"


@dataclasses.dataclass(frozen=True)
class _StridedShard(Shard):
    """A part of what the dimensions of the grid to the right have split into `split_factor` parts before."""

    split_factor: int = 1

    def __str__(self):
        return f"_S({self.dim}, {self.split_factor})"


@dataclasses.dataclass(frozen=True)
class Replicate(Placement):
    """Each process has all of it."""

    def __str__(self):
        return "R"


@dataclasses.dataclass(frozen=True)
class Partial(Placement):
    """Each process has a term of a sum, or of another reduction: avg, product, max or min."""

    reduce_op: str = "sum"

    def __str__(self):
        return f"P({self.reduce_op})"


@dataclasses.dataclass(frozen=True)
class _NormPartial(Partial):
    """Each process has the norm, of an order, of its part."""

    reduce_op: str = "sum"
    norm_type: float = 2.0

    def __str__(self):
        return f"_NormP({self.reduce_op}, {self.norm_type})"


_Partial = Partial


def splitting_order(placements):
    """The dimensions of the grid in the order in which they split: strided ones after those to their right."""
    strided = [i for i, placement in enumerate(placements) if isinstance(placement, _StridedShard)]
    return [i for i in range(len(placements)) if i not in strided] + strided[::-1]


def gradient_placements(placements):
    """How the gradient of a tensor lies: that of a term of a sum is the sum's."""
    return tuple(Replicate() if isinstance(placement, Partial) else placement for placement in placements)
