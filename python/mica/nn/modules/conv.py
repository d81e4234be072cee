"""Convolutions, plain and transposed."""

import math

from mica import _C
from mica._C import Tensor

from .. import functional as F
from .. import init
from ..parameter import Parameter
from ._lazy_conv import _LazyConvTranspose, _LazyConvXdMixin, _LazyPlainConv
from .module import Module
from .utils import _ntuple, _pair, _reverse_repeat_tuple, _single, _triple  # noqa: F401

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip

_LazyConvXdMixin.__module__ = __name__  # where programs look for it

_PADDING_WORDS = {"same", "valid"}
_PADDING_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    """Filters and how they slide; classes with a number of dimensions give `_dims` and `_function`."""

    __constants__ = [
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "output_padding",
        "in_channels",
        "out_channels",
        "kernel_size",
    ]
    _dims = 0
    _function = None

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        bias,
        padding_mode,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if groups <= 0:
            raise ValueError(f"groups must be a positive integer, but got {groups}")
        if in_channels % groups != 0:
            raise ValueError(f"in_channels must be divisible by groups, but {in_channels} is not by {groups}")
        if out_channels % groups != 0:
            raise ValueError(f"out_channels must be divisible by groups, but {out_channels} is not by {groups}")
        if isinstance(padding, str):
            if padding not in _PADDING_WORDS:
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {_PADDING_WORDS}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {_PADDING_MODES}, but got padding_mode='{padding_mode}'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        # What F.pad adds where the borders are not zeros: both ends of every dimension, the last dimension first.
        if isinstance(padding, str):
            self._reversed_padding_repeated_twice = []
            for spread, taps in zip(reversed(dilation), reversed(kernel_size), strict=True):
                total = spread * (taps - 1) if padding == "same" else 0
                self._reversed_padding_repeated_twice += [total // 2, total - total // 2]
        else:
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(padding, 2)
        self.weight = Parameter(_C.empty(self._weight_shape(), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(_C.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_shape(self):
        sides = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
        return (sides[0], sides[1] // self.groups, *self.kernel_size)

    def reset_parameters(self):
        if self.weight.is_contiguous():
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        else:  # drawn in the order of the elements, whatever their order in memory
            drawn = _C.empty_like(self.weight, memory_format=_C.contiguous_format)
            self.weight.detach().copy_(init.kaiming_uniform_(drawn, a=math.sqrt(5)))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        zeros, ones = (0,) * len(self.kernel_size), (1,) * len(self.kernel_size)
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != zeros:
            text += f", padding={self.padding}"
        if self.dilation != ones:
            text += f", dilation={self.dilation}"
        if self.output_padding != zeros:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state):
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class _PlainConvNd(_ConvNd):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        each = _ntuple(self._dims)
        super().__init__(
            in_channels,
            out_channels,
            each(kernel_size),
            each(stride),
            padding if isinstance(padding, str) else each(padding),
            each(dilation),
            False,
            each(0),
            groups,
            bias,
            padding_mode,
            device=device,
            dtype=dtype,
        )

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * self._dims
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_PlainConvNd):
    """Slides filters along sequences of (batch, channels, length), or of one sequence without the batch.

    The arguments are those of Conv2d, with one size in the place of two.
    """

    _dims = 1
    _function = staticmethod(F.conv1d)


class Conv2d(_PlainConvNd):
    """Slides filters over images of (batch, channels, height, width), or of one image without the batch.

    Args:
        in_channels: the number of channels of the input
        out_channels: the number of filters, and of channels of the result
        kernel_size: the height and the width of a filter: a number for both, or a pair
        stride: how far a filter moves at a time
        padding: how many rows and columns are added at each side; "same" keeps the size, "valid" adds none
        dilation: the distance between the elements that a filter reads
        groups: into how many groups channels are divided; a filter reads the channels of its own group
        bias: whether a number is added to each channel of the result
        padding_mode: what is added: "zeros", "reflect", "replicate" or "circular"
        device, dtype: of the parameters

    Example::

        layer = nn.Conv2d(3, 16, kernel_size=3, stride=2, padding=1)
        layer(torch.randn(8, 3, 32, 32)).shape  # (8, 16, 16, 16)
    """

    _dims = 2
    _function = staticmethod(F.conv2d)


class Conv3d(_PlainConvNd):
    """Slides filters through volumes of (batch, channels, depth, height, width), or of one volume without the batch.

    The arguments are those of Conv2d, with three sizes in the place of two.
    """

    _dims = 3
    _function = staticmethod(F.conv3d)


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        each = _ntuple(self._dims)
        super().__init__(
            in_channels,
            out_channels,
            each(kernel_size),
            each(stride),
            each(padding),
            each(dilation),
            True,
            each(output_padding),
            groups,
            bias,
            padding_mode,
            device=device,
            dtype=dtype,
        )

    def _output_padding(self, input, output_size, stride, padding, kernel_size, num_spatial_dims, dilation=None):
        """The output padding under which the output has a given size, in its spatial dimensions or in all."""
        if output_size is None:
            return self.output_padding
        others = input.dim() - num_spatial_dims if input.dim() == num_spatial_dims + 2 else 1
        if len(output_size) == others + num_spatial_dims:
            output_size = output_size[others:]
        if len(output_size) != num_spatial_dims:
            raise ValueError(
                f"ConvTranspose{num_spatial_dims}D: for {input.dim()}D input, output_size must have "
                f"{num_spatial_dims} or {others + num_spatial_dims} elements (got {len(output_size)})"
            )
        dilation = dilation or (1,) * num_spatial_dims
        least = [
            (input.size(others + d) - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel_size[d] - 1) + 1
            for d in range(num_spatial_dims)
        ]
        most = [size + step - 1 for size, step in zip(least, stride, strict=True)]
        if not all(low <= size <= high for low, size, high in zip(least, output_size, most, strict=True)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {least} to {most} "
                f"(for an input of {input.size()[2:]})"
            )
        return [size - low for size, low in zip(output_size, least, strict=True)]

    def forward(self, input, output_size=None):
        output_padding = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self._dims, self.dilation
        )
        return self._function(
            input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation
        )


class ConvTranspose1d(_ConvTransposeNd):
    """The transposed convolution of sequences: stretches them by the stride."""

    _dims = 1
    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """The transposed convolution of images, (batch, channels, height, width): it enlarges them by the stride.

    The arguments are those of Conv2d; `output_padding` adds rows and columns to one side of the result, because several
    sizes of a convolution's input give the same size of its result.

    Example::

        layer = nn.ConvTranspose2d(16, 8, kernel_size=4, stride=2, padding=1)
        layer(torch.randn(1, 16, 14, 14)).shape  # (1, 8, 28, 28)
    """

    _dims = 2
    _function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """The transposed convolution of volumes: enlarges them by the stride."""

    _dims = 3
    _function = staticmethod(F.conv_transpose3d)


class LazyConv1d(_LazyPlainConv, Conv1d):
    """A Conv1d that takes in_channels from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyPlainConv, Conv2d):
    """A Conv2d that takes in_channels from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyPlainConv, Conv3d):
    """A Conv3d that takes in_channels from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A ConvTranspose1d that takes in_channels from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A ConvTranspose2d that takes in_channels from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A ConvTranspose3d that takes in_channels from its first input."""

    cls_to_become = ConvTranspose3d
