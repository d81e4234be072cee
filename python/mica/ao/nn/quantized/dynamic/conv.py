"""Convolutions with qint8 weights that take float32 and quantize it as it comes."""

from mica import _C
from mica.ao.nn.quantized import layers

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Dynamic:
    """The input's scale is found at every call; the result is float32."""

    _output_scale = None  # the sums are not rounded

    def _observed(self, module):
        from mica.ao.nn.quantized.dynamic.rnn import quantized_rows

        has_observer = getattr(module, "qconfig", None) is not None
        weight = layers.quantized_weight(module) if has_observer else quantized_rows(module.weight, _C.qint8)
        self.set_weight_bias(weight, module.bias)
        return self

    def forward(self, x):
        self._check_shape(x)
        return self._convolve(_C.quantize_per_tensor_dynamic(x, _C.quint8, False))

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        state_dict.setdefault(prefix + "scale", 1.0)
        state_dict.setdefault(prefix + "zero_point", 0)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _get_name(self):
        return f"DynamicQuantized{type(self).__name__}"


class Conv1d(_Dynamic, layers.Conv1d):
    """nn.Conv1d with a qint8 weight."""


class Conv2d(_Dynamic, layers.Conv2d):
    """nn.Conv2d with a qint8 weight."""


class Conv3d(_Dynamic, layers.Conv3d):
    """nn.Conv3d with a qint8 weight."""


class ConvTranspose1d(_Dynamic, layers.ConvTranspose1d):
    """nn.ConvTranspose1d with a qint8 weight."""


class ConvTranspose2d(_Dynamic, layers.ConvTranspose2d):
    """nn.ConvTranspose2d with a qint8 weight."""


class ConvTranspose3d(_Dynamic, layers.ConvTranspose3d):
    """nn.ConvTranspose3d with a qint8 weight."""
