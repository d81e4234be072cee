"""Sliding blocks of images."""

from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F

__all__ = ["Fold", "Unfold"]


class Fold(options.Fold):
    """Puts images together from sliding blocks; where blocks overlap, their values add up."""

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class Unfold(options.Unfold):
    """The sliding blocks of images, each as a column."""

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
