"""Masks that leave the diagonals nearest to the main one."""

from mica import ones, zeros_like
from mica.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier

__all__ = ["NearlyDiagonalSparsifier"]


class NearlyDiagonalSparsifier(BaseSparsifier):
    """Leaves `nearliness` diagonals, an odd number."""

    def __init__(self, nearliness=1):
        super().__init__(defaults={"nearliness": nearliness})

    def update_mask(self, module, tensor_name, nearliness, **kwargs):
        mask = getattr(module.parametrizations, tensor_name)[0].mask
        if nearliness > 0 and nearliness % 2 == 0:
            raise ValueError("nearliness can only be an odd number")
        if nearliness > 0 and nearliness // 2 >= min(mask.shape):
            raise ValueError("nearliness cannot be larger than the dimensions of tensor.")
        mask.data = zeros_like(mask)
        if nearliness > 0:
            away = nearliness // 2
            mask.copy_(ones(mask.shape, device=mask.device).triu(-away).tril(away))
