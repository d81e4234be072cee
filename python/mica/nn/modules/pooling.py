"""Pooling layers."""

from mica._C import Tensor

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
class _MaxPoolNd(Module):
    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self):
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )

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
    """The largest element of every window of the last two dimensions."""

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


class _MaxUnpoolNd(Module):
    def __init__(self, expand, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size = expand(kernel_size)
        self.stride = expand(stride if stride is not None else kernel_size)
        self.padding = expand(padding)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts the maxima of a `MaxPool1d` back where they came from."""

    kernel_size: int | tuple[int]
    stride: int | tuple[int]
    padding: int | tuple[int]

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__(_single, kernel_size, stride, padding)

    def forward(self, input, indices, output_size=None):
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts the maxima of a `MaxPool2d` back where they came from."""

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int]
    padding: int | tuple[int, int]

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__(_pair, kernel_size, stride, padding)

    def forward(self, input, indices, output_size=None):
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts the maxima of a `MaxPool3d` back where they came from."""

    kernel_size: int | tuple[int, int, int]
    stride: int | tuple[int, int, int]
    padding: int | tuple[int, int, int]

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__(_triple, kernel_size, stride, padding)

    def forward(self, input, indices, output_size=None):
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


# ---- average -------------------------------------------------------------------------------------------------------
class _AvgPoolNd(Module):
    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]

    def __init__(self, kernel_size, stride, padding, ceil_mode, count_include_pad):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def _arguments(self):
        return self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad


class AvgPool1d(_AvgPoolNd):
    """The mean of every window of the last dimension."""

    kernel_size: int | tuple[int]
    stride: int | tuple[int]
    padding: int | tuple[int]
    ceil_mode: bool
    count_include_pad: bool

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        steps = _single(stride if stride is not None else kernel_size)
        super().__init__(_single(kernel_size), steps, _single(padding), ceil_mode, count_include_pad)

    def forward(self, input: Tensor):
        return F.avg_pool1d(input, *self._arguments())


class AvgPool2d(_AvgPoolNd):
    """The mean of every window of the last two dimensions."""

    __constants__ = [*_AvgPoolNd.__constants__, "divisor_override"]
    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int]
    padding: int | tuple[int, int]
    ceil_mode: bool
    count_include_pad: bool

    def __init__(
        self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor):
        return F.avg_pool2d(input, *self._arguments(), self.divisor_override)


class AvgPool3d(_AvgPoolNd):
    """The mean of every window of the last three dimensions."""

    __constants__ = [*_AvgPoolNd.__constants__, "divisor_override"]
    kernel_size: int | tuple[int, int, int]
    stride: int | tuple[int, int, int]
    padding: int | tuple[int, int, int]
    ceil_mode: bool
    count_include_pad: bool

    def __init__(
        self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

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
class _LPPoolNd(Module):
    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self):
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )

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
class _AdaptiveMaxPoolNd(Module):
    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size, return_indices=False):
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self):
        return f"output_size={self.output_size}"


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


class _AdaptiveAvgPoolNd(Module):
    __constants__ = ["output_size"]

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def extra_repr(self):
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of windows that cover the last dimension evenly."""

    def forward(self, input: Tensor):
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of windows that cover the last two dimensions evenly."""

    def forward(self, input: Tensor):
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of windows that cover the last three dimensions evenly."""

    def forward(self, input: Tensor):
        return F.adaptive_avg_pool3d(input, self.output_size)
