"""Quantized layers joined with what follows them. The result is rounded once, with the scale of the whole."""

from mica import nn
from mica.ao.nn import quantized as nnq

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvAdd2d", "ConvAddReLU2d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearLeakyReLU",
    "LinearReLU", "LinearTanh",
]  # fmt: skip


class _Parts:
    """An observed pair of modules as the first one's quantized form sees it: its weight, and the pair's observer."""

    def __init__(self, pair):
        self._first = pair[0]
        self.qconfig, self.activation_post_process = pair.qconfig, pair.activation_post_process

    def __getattr__(self, name):
        return getattr(self._first, name)


class _WithReLU:
    """Applies relu to integers: the zero point stands for zero, so that smaller integers become the zero point."""

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an observed pair of modules, or of one that was trained as a pair."""
        return super().from_float(_Parts(mod) if isinstance(mod, nn.Sequential) else mod)

    def forward(self, x):
        return super().forward(x).relu()


class LinearReLU(_WithReLU, nnq.Linear):
    """A linear map and relu."""


class ConvReLU1d(_WithReLU, nnq.Conv1d):
    """A convolution of sequences and relu."""


class ConvReLU2d(_WithReLU, nnq.Conv2d):
    """A convolution of images and relu."""


class ConvReLU3d(_WithReLU, nnq.Conv3d):
    """A convolution of volumes and relu."""


class ConvAdd2d(nnq.Conv2d):
    """A convolution of images and a sum with another input."""

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an observed ConvAdd2d."""
        return super().from_float(_Parts(mod))

    def forward(self, input, extra_input):
        from mica import _C

        if input.dim() != 4:
            raise ValueError("Input shape must be `(N, C, H, W)`!")
        options = (self.stride, self.padding, self.dilation, self.groups)
        values = nnq.functional.conv2d(input, self._weight, self._bias, *options) + extra_input.dequantize()
        return _C.quantize_per_tensor(self._last(values), self.scale, self.zero_point, input.dtype)

    def _last(self, values):
        return values


class ConvAddReLU2d(ConvAdd2d):
    """A convolution of images, a sum with another input, and relu."""

    def _last(self, values):
        return values.relu()


class _Normalized:
    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an observed pair of modules."""
        first = mod[0]
        first.qconfig, first.activation_post_process = mod.qconfig, mod.activation_post_process
        return super().from_float(first)

    def forward(self, x):
        return super().forward(x).relu()


class BNReLU2d(_Normalized, nnq.BatchNorm2d):
    """Batch normalization of images and relu."""


class BNReLU3d(_Normalized, nnq.BatchNorm3d):
    """Batch normalization of volumes and relu."""


class _WithActivation(nnq.Linear):
    """A linear map in float32 before the activation: the scale is that of the activation's result."""

    def forward(self, x):
        from mica import _C

        values = self._activation(nnq.functional.linear(x, self._weight, self._bias))
        return _C.quantize_per_tensor(values, self.scale, self.zero_point, x.dtype)

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an observed pair of modules."""
        made = super().from_float(_Parts(mod))
        if isinstance(mod[1], nn.LeakyReLU):
            made.negative_slope = mod[1].negative_slope
        return made


class LinearLeakyReLU(_WithActivation):
    """A linear map and leaky_relu."""

    negative_slope = 0.01

    def _activation(self, values):
        return nn.functional.leaky_relu(values, self.negative_slope)


class LinearTanh(_WithActivation):
    """A linear map and tanh."""

    def _activation(self, values):
        return values.tanh()


def __getattr__(name):
    if name == "dynamic":
        import importlib

        return importlib.import_module(f"{__name__}.dynamic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
