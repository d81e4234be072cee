"""Distances and angles between vectors."""

from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(options.PairwiseDistance):
    """The p-norm of differences along the last dimension."""

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(options.CosineSimilarity):
    """The cosine of the angle between vectors along a dimension."""

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
