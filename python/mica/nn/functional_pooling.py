"""Pooling functions whose result depends on `return_indices`, or whose sizes may be None: they only choose what to call."""

from mica import _C
from mica._functions.wrapping import asks_arguments as _asks

_functions = _C._nn_functional

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]


@_asks
def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of every window of the last dimension; with `return_indices` also its index."""
    pool = _functions.max_pool1d_with_indices if return_indices else _C.max_pool1d
    return pool(input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


@_asks
def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of every window of the last two dimensions; with `return_indices` also its index."""
    pool = _functions.max_pool2d_with_indices if return_indices else _C.max_pool2d
    return pool(input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


@_asks
def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of every window of the last three dimensions; with `return_indices` also its index."""
    pool = _functions.max_pool3d_with_indices if return_indices else _C.max_pool3d
    return pool(input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)


def _sizes(output_size, input):
    """The sizes, with the input's own in the place of each None."""
    if isinstance(output_size, int):
        return output_size
    from mica.nn.modules.utils import _list_with_default

    return _list_with_default(output_size, input.size())


@_asks
def adaptive_avg_pool2d(input, output_size):
    """The means of windows that cover the last two dimensions evenly; None keeps a dimension as it is."""
    return _functions.adaptive_avg_pool2d(input, _sizes(output_size, input))


@_asks
def adaptive_avg_pool3d(input, output_size):
    """The means of windows that cover the last three dimensions evenly; None keeps a dimension as it is."""
    return _functions.adaptive_avg_pool3d(input, _sizes(output_size, input))


@_asks
def adaptive_max_pool1d_with_indices(input, output_size, return_indices=False):
    """The maxima of windows that cover the last dimension evenly, and their indices."""
    return _C.adaptive_max_pool1d(input, output_size)


@_asks
def adaptive_max_pool2d_with_indices(input, output_size, return_indices=False):
    """The maxima of windows that cover the last two dimensions evenly, and their indices within the plane."""
    return _functions._adaptive_max_pool2d(input, _sizes(output_size, input))


@_asks
def adaptive_max_pool3d_with_indices(input, output_size, return_indices=False):
    """The maxima of windows that cover the last three dimensions evenly, and their indices within the volume."""
    return _functions._adaptive_max_pool3d(input, _sizes(output_size, input))


@_asks
def adaptive_max_pool1d(input, output_size, return_indices=False):
    """The maxima of windows that cover the last dimension evenly; with `return_indices` also their indices."""
    pooled = adaptive_max_pool1d_with_indices(input, output_size)
    return pooled if return_indices else pooled[0]


@_asks
def adaptive_max_pool2d(input, output_size, return_indices=False):
    """The maxima of windows that cover the last two dimensions evenly; with `return_indices` also their indices."""
    pooled = adaptive_max_pool2d_with_indices(input, output_size)
    return pooled if return_indices else pooled[0]


@_asks
def adaptive_max_pool3d(input, output_size, return_indices=False):
    """The maxima of windows that cover the last three dimensions evenly; with `return_indices` also their indices."""
    pooled = adaptive_max_pool3d_with_indices(input, output_size)
    return pooled if return_indices else pooled[0]


@_asks
def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """The maxima of windows at random distances; with `return_indices` also their indices."""
    pooled = _functions.fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )
    return pooled if return_indices else pooled[0]


@_asks
def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """The maxima of windows at random distances; with `return_indices` also their indices."""
    pooled = _functions.fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )
    return pooled if return_indices else pooled[0]
