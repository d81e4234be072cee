"""Normalisation by the response of neighbouring channels."""

from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F

__all__ = ["CrossMapLRN2d", "LocalResponseNorm"]


class LocalResponseNorm(options.LocalResponseNorm):
    """Each element over a power of the mean square of its neighbours in `size` channels."""

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(options.CrossMapLRN2d):
    """LocalResponseNorm for images, with the window of channels counted as torch's older layer does."""

    def forward(self, input: Tensor) -> Tensor:
        return F._cross_map_lrn2d(input, self.size, self.alpha, self.beta, self.k)[0]
