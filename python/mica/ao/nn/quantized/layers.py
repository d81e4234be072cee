"""Linear maps and convolutions of quantized tensors, as modules."""

from mica import _C
from mica.ao.nn.quantized import functional
from mica.nn import Module
from mica.nn import functional as F

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Linear", "quantized_weight",
]  # fmt: skip


def quantized_weight(module):
    """The module's weight as its qconfig's weight observer says, or the one that has seen its training."""
    trained = getattr(module, "weight_fake_quant", None)
    return observed_weight(module.weight.detach(), module.qconfig.weight() if trained is None else trained)


def observed_weight(weight, observer):
    """A weight with the scale, or the scales of its rows, that an observer finds for it."""
    from mica._functions import quantization_schemes as schemes

    observer(weight)
    scale, zero_point = observer.calculate_qparams()
    if observer.qscheme in (schemes.per_channel_affine, schemes.per_channel_symmetric):
        return _C.quantize_per_channel(weight, scale, zero_point, observer.ch_axis, observer.dtype)
    return _C.quantize_per_tensor(weight, float(scale), int(zero_point), observer.dtype)


class _WithWeight(Module):
    """What quantized layers share: a weight, a bias, and the scale and zero point of what they return."""

    def __init__(self, weight, bias):
        super().__init__()
        self.set_weight_bias(weight, bias)
        self.scale, self.zero_point = 1.0, 0

    def set_weight_bias(self, w, b):
        """Another quantized weight, and another bias or None."""
        if not w.is_quantized:
            raise TypeError(f"{type(self).__name__}: the weight is a quantized tensor, got {w.dtype}")
        self._weight, self._bias = w, None if b is None else b.detach().clone()

    def weight(self):
        """The quantized weight."""
        return self._weight

    def bias(self):
        """The bias, in float32."""
        return self._bias

    def _observed(self, module):
        """Take the weight and the parameters of the output from an observed module."""
        self.set_weight_bias(quantized_weight(module), module.bias)
        scale, zero_point = module.activation_post_process.calculate_qparams()
        self.scale, self.zero_point = float(scale), int(zero_point)
        return self

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"], destination[prefix + "bias"] = self._weight, self._bias
        destination[prefix + "scale"] = _C.tensor(self.scale)
        destination[prefix + "zero_point"] = _C.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        packed = state_dict.pop(prefix + "_packed_params._packed_params", None)  # torch's name for Linear's pair
        state_dict.pop(prefix + "_packed_params.dtype", None)
        if packed is None:
            packed = state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias")
        self._weight, self._bias = packed
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, unexpected, errors)


def _rows_of_zeros(shape, dtype=None):
    return _C.quantize_per_tensor(_C.zeros(shape), 1.0, 0, _C.qint8 if dtype is None else dtype)


def save_packed(destination, prefix, scale, zero_point, dtype, weight, bias):
    """A linear layer's state by torch's names: its weight and bias are a pair, of a module within the layer."""
    destination[prefix + "scale"], destination[prefix + "zero_point"] = _C.tensor(scale), _C.tensor(zero_point)
    destination[prefix + "_packed_params.dtype"] = dtype
    destination[prefix + "_packed_params._packed_params"] = (weight, bias)
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix + "_packed_params"] = {"version": 3}


class Linear(_WithWeight):
    """A linear map of quantized tensors, with integer products."""

    _version = 3

    def __init__(self, in_features, out_features, bias_=True, dtype=None):
        if dtype not in (None, _C.qint8):
            raise RuntimeError(f"Unsupported dtype specified for quantized Linear: {dtype}; qint8 is there")
        super().__init__(_rows_of_zeros((out_features, in_features)), _C.zeros(out_features) if bias_ else None)
        self.in_features, self.out_features = in_features, out_features

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an observed nn.Linear."""
        mod = mod._folded() if hasattr(mod, "_folded") else mod
        return cls(mod.in_features, mod.out_features, mod.bias is not None)._observed(mod)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        save_packed(destination, prefix, self.scale, self.zero_point, _C.qint8, self._weight, self._bias)

    def forward(self, x):
        return functional.linear(x, self._weight, self._bias, self.scale, self.zero_point)

    def _get_name(self):
        return "QuantizedLinear"

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, "
            f"zero_point={self.zero_point}, qscheme={self._weight.qscheme()}"
        )


class _ConvNd(_WithWeight):
    """The options of a convolution, and its shape."""

    _dims, _transposed = 2, False

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
        padding_mode="zeros", output_padding=0,
    ):  # fmt: skip
        if padding_mode != "zeros" or isinstance(padding, str):
            raise NotImplementedError(
                f"quantized {type(self).__name__}: padding_mode='zeros' with a number of pixels is there, "
                f"got {padding_mode!r} and {padding!r}"
            )
        if in_channels % groups or out_channels % groups:
            raise ValueError("in_channels and out_channels must be divisible by groups")
        self_size = self._tuple(kernel_size)
        channels = (in_channels, out_channels // groups) if self._transposed else (out_channels, in_channels // groups)
        super().__init__(_rows_of_zeros((*channels, *self_size)), _C.zeros(out_channels) if bias else None)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, self_size
        self.stride, self.padding, self.dilation = map(self._tuple, (stride, padding, dilation))
        self.output_padding, self.groups, self.padding_mode = self._tuple(output_padding), groups, padding_mode

    def _tuple(self, value):
        return (value,) * self._dims if isinstance(value, int) else tuple(value)

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an observed convolution."""
        mod = mod._folded() if hasattr(mod, "_folded") else mod
        more = {"output_padding": mod.output_padding} if cls._transposed else {}
        made = cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, dilation=mod.dilation,
            groups=mod.groups, bias=mod.bias is not None, padding_mode=mod.padding_mode, **more,
        )  # fmt: skip
        return made._observed(mod)

    @property
    def _output_scale(self):
        """The scale that results are rounded to."""
        return self.scale

    def _check_shape(self, x):
        if x.dim() != self._dims + 2:
            raise ValueError(f"Input shape must be `(N, C, {('L', 'H, W', 'D, H, W')[self._dims - 1]})`!")

    def forward(self, x):
        self._check_shape(x)
        return self._convolve(x)

    def _get_name(self):
        return f"Quantized{type(self).__name__}"

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", scale={self.scale}, zero_point={self.zero_point}"
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if getattr(self, name) != (usual,) * self._dims:
                text += f", {name}={getattr(self, name)}"
        text += "" if self.groups == 1 else f", groups={self.groups}"
        return text + ("" if self._bias is not None else ", bias=False")


class Conv2d(_ConvNd):
    """A convolution of quantized images, with integer products."""

    def _convolve(self, x):
        return functional.conv2d(
            x, self._weight, self._bias, self.stride, self.padding, self.dilation, self.groups, self._output_scale,
            self.zero_point,
        )  # fmt: skip


class Conv1d(_ConvNd):
    """A convolution of quantized sequences."""

    _dims = 1

    def _convolve(self, x):
        return functional.conv1d(
            x, self._weight, self._bias, self.stride, self.padding, self.dilation, self.groups, self._output_scale,
            self.zero_point,
        )  # fmt: skip


class Conv3d(_ConvNd):
    """A convolution of quantized volumes. Products are float64, in which those of 8-bit integers are exact."""

    _dims = 3

    def _convolve(self, x):
        return functional.conv3d(
            x, self._weight, self._bias, self.stride, self.padding, self.dilation, self.groups, self._output_scale,
            self.zero_point,
        )  # fmt: skip


class _TransposedNd(_ConvNd):
    _transposed = True

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True,
        dilation=1, padding_mode="zeros",
    ):  # fmt: skip
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            output_padding,
        )

    def _convolve(self, x):
        call = getattr(F, f"conv_transpose{self._dims}d")
        values = call(
            x.dequantize().double(), self._weight.dequantize().double(), None, self.stride, self.padding,
            self.output_padding, self.groups, self.dilation,
        ).float()  # fmt: skip
        if self._bias is not None:
            values = values + self._bias.reshape(-1, *[1] * self._dims)
        return functional._requantized(values, self._output_scale, self.zero_point, x.dtype)


class ConvTranspose1d(_TransposedNd):
    """A transposed convolution of quantized sequences. Products are float64, exact for 8-bit integers."""

    _dims = 1


class ConvTranspose2d(_TransposedNd):
    """A transposed convolution of quantized images. Products are float64, exact for 8-bit integers."""


class ConvTranspose3d(_TransposedNd):
    """A transposed convolution of quantized volumes. Products are float64, exact for 8-bit integers."""

    _dims = 3
