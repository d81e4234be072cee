"""Pooling layers."""

from mica._C import Tensor
from mica._generated import modules as options
from mica._generated.modules import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _MaxUnpoolNd

from .. import functional as F
from .module import Module
from .utils import _pair, _single, _triple

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


# ---- maximum -------------------------------------------------------------------------------------------------------
class _MaxPoolNd(options._MaxPoolNd):
    def _arguments(self):
        return self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices


class MaxPool1d(_MaxPoolNd):
    """The largest element of every window of the last dimension."""

    kernel_size: int | tuple[int]
    stride: int | tuple[int]
    padding: int | tuple[int]
    dilation: int | tuple[int]

    def forward(self, input: Tensor):
        return F.max_pool1d(input, *self._arguments())


class MaxPool2d(_MaxPoolNd):
    """The largest element of every window of the last two dimensions.

    Args:
        kernel_size: the height and the width of a window: a number for both, or a pair
        stride: how far a window moves at a time; kernel_size if it is not given
        padding: how many rows and columns of minus infinity are added at each side
        dilation: the distance between the elements of a window
        return_indices: whether the indices of the maxima within their planes are returned too, for MaxUnpool2d
        ceil_mode: whether a last window that reaches over the border counts

    Example::

        nn.MaxPool2d(2)(torch.randn(8, 16, 32, 32)).shape  # (8, 16, 16, 16)
    """

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int]
    padding: int | tuple[int, int]
    dilation: int | tuple[int, int]

    def forward(self, input: Tensor):
        return F.max_pool2d(input, *self._arguments())


class MaxPool3d(_MaxPoolNd):
    """The largest element of every window of the last three dimensions."""

    kernel_size: int | tuple[int, int, int]
    stride: int | tuple[int, int, int]
    padding: int | tuple[int, int, int]
    dilation: int | tuple[int, int, int]

    def forward(self, input: Tensor):
        return F.max_pool3d(input, *self._arguments())


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts the maxima of a `MaxPool1d` back where they came from."""

    kernel_size: int | tuple[int]
    stride: int | tuple[int]
    padding: int | tuple[int]

    _dims = 1

    def forward(self, input, indices, output_size=None):
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts the maxima of a `MaxPool2d` back where they came from."""

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int]
    padding: int | tuple[int, int]

    _dims = 2

    def forward(self, input, indices, output_size=None):
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts the maxima of a `MaxPool3d` back where they came from."""

    kernel_size: int | tuple[int, int, int]
    stride: int | tuple[int, int, int]
    padding: int | tuple[int, int, int]

    _dims = 3

    def forward(self, input, indices, output_size=None):
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


# ---- average -------------------------------------------------------------------------------------------------------
class _AvgPoolNd(options._AvgPoolNd):
    def _arguments(self):
        return self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad


class AvgPool1d(_AvgPoolNd):
    """The mean of every window of the last dimension."""

    __constants__ = _AvgPoolNd.__constants__[:-1]
    kernel_size: int | tuple[int]
    stride: int | tuple[int]
    padding: int | tuple[int]

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        steps = _single(stride if stride is not None else kernel_size)
        super().__init__(_single(kernel_size), steps, _single(padding), ceil_mode, count_include_pad)
        del self.divisor_override  # of images and volumes

    def forward(self, input: Tensor):
        return F.avg_pool1d(input, *self._arguments())


class AvgPool2d(_AvgPoolNd):
    """The mean of every window of the last two dimensions.

    Args:
        kernel_size: the height and the width of a window: a number for both, or a pair
        stride: how far a window moves at a time; kernel_size if it is not given
        padding: how many rows and columns of zeros are added at each side
        ceil_mode: whether a last window that reaches over the border counts
        count_include_pad: whether the added zeros count in the mean
        divisor_override: the number to divide by in the place of the window's size
    """

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int]
    padding: int | tuple[int, int]

    def forward(self, input: Tensor):
        return F.avg_pool2d(input, *self._arguments(), self.divisor_override)


class AvgPool3d(_AvgPoolNd):
    """The mean of every window of the last three dimensions."""

    kernel_size: int | tuple[int, int, int]
    stride: int | tuple[int, int, int]
    padding: int | tuple[int, int, int]

    def forward(self, input: Tensor):
        return F.avg_pool3d(input, *self._arguments(), self.divisor_override)

    def __setstate__(self, state):
        super().__setstate__(state)
        for name, default in (("padding", 0), ("ceil_mode", False), ("count_include_pad", True)):
            self.__dict__.setdefault(name, default)


# ---- windows at random distances -----------------------------------------------------------------------------------
class _FractionalMaxPoolNd(Module):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]

    def __init__(self, expand, kernel_size, output_size, output_ratio, return_indices, _random_samples):
        super().__init__()
        self.kernel_size = expand(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = expand(output_size) if output_size is not None else None
        self.output_ratio = expand(output_ratio) if output_ratio is not None else None
        if output_size is None and output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def _arguments(self):
        return self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The maxima of windows at random distances in the last two dimensions."""

    kernel_size: int | tuple[int, int]
    return_indices: bool
    output_size: int | tuple[int, int]
    output_ratio: float | tuple[float, float]

    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        super().__init__(_pair, kernel_size, output_size, output_ratio, return_indices, _random_samples)

    def forward(self, input: Tensor):
        return F.fractional_max_pool2d(input, *self._arguments())


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The maxima of windows at random distances in the last three dimensions."""

    kernel_size: int | tuple[int, int, int]
    return_indices: bool
    output_size: int | tuple[int, int, int]
    output_ratio: float | tuple[float, float, float]

    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        if not all(size > 0 for size in _triple(kernel_size)):
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        super().__init__(_triple, kernel_size, output_size, output_ratio, return_indices, _random_samples)

    def forward(self, input: Tensor):
        return F.fractional_max_pool3d(input, *self._arguments())


# ---- power averages ------------------------------------------------------------------------------------------------
class _LPPoolNd(options._LPPoolNd):
    def _arguments(self):
        return float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode


class LPPool1d(_LPPoolNd):
    """The norm of every window of the last dimension."""

    kernel_size: int | tuple[int]
    stride: int | tuple[int]

    def forward(self, input: Tensor):
        return F.lp_pool1d(input, *self._arguments())


class LPPool2d(_LPPoolNd):
    """The norm of every window of the last two dimensions."""

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int]

    def forward(self, input: Tensor):
        return F.lp_pool2d(input, *self._arguments())


class LPPool3d(_LPPoolNd):
    """The norm of every window of the last three dimensions."""

    kernel_size: int | tuple[int, int, int]
    stride: int | tuple[int, int, int]

    def forward(self, input: Tensor):
        return F.lp_pool3d(input, *self._arguments())


# ---- a given number of windows -------------------------------------------------------------------------------------
class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The maxima of windows that cover the last dimension evenly."""

    def forward(self, input: Tensor):
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The maxima of windows that cover the last two dimensions evenly."""

    def forward(self, input: Tensor):
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The maxima of windows that cover the last three dimensions evenly."""

    def forward(self, input: Tensor):
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of windows that cover the last dimension evenly."""

    def forward(self, input: Tensor):
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of windows that cover the last two dimensions evenly.

    `output_size` is how many windows there are: a number for both dimensions, or a pair in which None keeps a size.
    """

    def forward(self, input: Tensor):
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of windows that cover the last three dimensions evenly."""

    def forward(self, input: Tensor):
        return F.adaptive_avg_pool3d(input, self.output_size)
