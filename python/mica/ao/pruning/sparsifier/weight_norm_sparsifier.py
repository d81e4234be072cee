"""Masks that drop the blocks of a weight with the smallest norm."""

import math

from mica import nan, ones, ones_like, topk, zeros_like
from mica.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier
from mica.nn import functional as F

__all__ = ["WeightNormSparsifier"]


def _spread(blocks, shape, block_shape):
    """A number for each block, or for each element of each block, [elements, blocks], as a matrix of a shape."""
    height, width = block_shape
    rows, columns = (-(-size // step) for size, step in zip(shape, block_shape, strict=True))
    grid = blocks.expand(height * width, -1).reshape(height, width, rows, columns)
    return grid.permute(2, 0, 3, 1).reshape(rows * height, columns * width)[: shape[0], : shape[1]].contiguous()


class WeightNormSparsifier(BaseSparsifier):
    """Drops the share `sparsity_level` of the blocks, those with the smallest norm.

    Blocks are of the shape `sparse_block_shape`, rows and columns. Of a block that is dropped, the `zeros_per_block`
    smallest elements become zero, all of them unless it is given. `norm` is 1, 2 or a function.
    """

    def __init__(self, sparsity_level=0.5, sparse_block_shape=(1, 4), zeros_per_block=None, norm=None):
        norm = 2 if norm is None else norm
        if not callable(norm) and norm not in (1, 2):
            raise NotImplementedError(f"L-{norm} is not yet implemented.")
        self.norm_fn = norm if callable(norm) else (abs if norm == 1 else lambda t: t * t)
        super().__init__(
            defaults={
                "sparsity_level": sparsity_level,
                "sparse_block_shape": sparse_block_shape,
                "zeros_per_block": math.prod(sparse_block_shape) if zeros_per_block is None else zeros_per_block,
            }
        )

    def _tensor_mask(self, data, sparsity_level, block_shape):
        """Zeros in the blocks of the smallest mean."""
        if sparsity_level >= 1:
            return zeros_like(data)
        means = F.avg_pool2d(data[None, None], block_shape, block_shape, ceil_mode=True).flatten()
        count = max(0, min(len(means) - 1, round(sparsity_level * len(means))))
        blocks = ones_like(means).scatter_(0, topk(means, count, largest=False)[1], 0)
        return _spread(blocks[None], data.shape, block_shape)

    def _block_mask(self, data, block_shape, zeros_per_block):
        """Zeros at the smallest elements of every block."""
        missing = [-size % step for size, step in zip(data.shape, block_shape, strict=True)]
        padded = F.pad(data, (0, missing[1], 0, missing[0]), value=nan)  # NaN is larger than any number
        elements = F.unfold(padded[None, None], block_shape, stride=block_shape)[0]
        smallest = topk(elements, zeros_per_block, dim=0, largest=False)[1]
        return _spread(ones_like(elements).scatter_(0, smallest, 0), data.shape, block_shape)

    def update_mask(self, module, tensor_name, sparsity_level, sparse_block_shape, zeros_per_block, **kwargs):
        elements = math.prod(sparse_block_shape)
        if zeros_per_block > elements:
            raise ValueError(
                "Number of zeros per block cannot be more than the total number of elements in that block."
            )
        if zeros_per_block < 0:
            raise ValueError("Number of zeros per block should be positive.")
        mask = getattr(module.parametrizations, tensor_name)[0].mask
        if sparsity_level <= 0 or zeros_per_block == 0:
            mask.data = ones(mask.shape, dtype=mask.dtype, device=mask.device)
            return
        data = self.norm_fn(getattr(module, tensor_name))
        found = self._tensor_mask(data, sparsity_level, sparse_block_shape)
        if zeros_per_block != elements:
            found = found.logical_or(self._block_mask(data, sparse_block_shape, zeros_per_block))
        mask.data = found
