"""Layers that move elements between channels and space."""

from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(options.PixelShuffle):
    """Groups of channels spread over space: (*, C r^2, H, W) becomes (*, C, H r, W r)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(options.PixelUnshuffle):
    """Neighbouring elements gathered into channels: (*, C, H r, W r) becomes (*, C r^2, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)
