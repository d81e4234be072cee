"""Activations and normalizations of quantized tensors, as modules: computed in float32, and rounded once."""

from mica import _C, nn

__all__ = [
    "ELU",
    "BatchNorm2d",
    "BatchNorm3d",
    "Dropout",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "MaxPool2d",
    "PReLU",
    "ReLU6",
    "Sigmoid",
    "Softmax",
]  # fmt: skip


class _Rounded:
    """A float module whose result is quantized with a scale and a zero point of its own."""

    def _rounding(self, scale, zero_point):
        self.register_buffer("scale", _C.tensor(float(scale)))
        self.register_buffer("zero_point", _C.tensor(int(zero_point)))

    def forward(self, input):
        values = super().forward(input.dequantize())
        return _C.quantize_per_tensor(values, float(self.scale), int(self.zero_point), input.dtype)

    def _get_name(self):
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an observed module."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        for name, value in vars(mod).items():
            if name not in ("_parameters", "_buffers", "_modules", "activation_post_process", "qconfig"):
                made.__dict__[name] = value
        made._forward_hooks = type(mod._forward_hooks)()  # those of the observer
        for name, value in mod._parameters.items():
            made._parameters[name] = None if value is None else nn.Parameter(value.detach().clone(), False)
        for name, value in mod._buffers.items():
            made._buffers[name] = None if value is None else value.detach().clone()
        made._rounding(*mod.activation_post_process.calculate_qparams())
        return made.eval()


class _OwnScale(_Rounded):
    """Modules whose first arguments are the scale and the zero point."""

    def __init__(self, scale, zero_point, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._rounding(scale, zero_point)


class ELU(_OwnScale, nn.ELU):
    """nn.ELU."""


class LeakyReLU(_OwnScale, nn.LeakyReLU):
    """nn.LeakyReLU."""


class Hardswish(_OwnScale, nn.Hardswish):
    """nn.Hardswish."""


class PReLU(_OwnScale, nn.PReLU):
    """nn.PReLU."""


class Sigmoid(_Rounded, nn.Sigmoid):
    """nn.Sigmoid."""

    def __init__(self, output_scale, output_zero_point):
        super().__init__()
        self._rounding(output_scale, output_zero_point)


class Softmax(_Rounded, nn.Softmax):
    """nn.Softmax."""

    def __init__(self, dim=None, scale=1.0, zero_point=0):
        super().__init__(dim)
        self._rounding(scale, zero_point)


class ReLU6(nn.ReLU6):
    """nn.ReLU6; the scale stays."""

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        return cls(mod.inplace)

    def _get_name(self):
        return "QuantizedReLU6"


class MaxPool2d(nn.MaxPool2d):
    """nn.MaxPool2d; the scale stays."""


class Dropout(nn.Dropout):
    """Returns its input, because a quantized model is not trained."""

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        return cls(mod.p, mod.inplace)

    def forward(self, input):
        return input

    def _get_name(self):
        return "QuantizedDropout"


class _BatchNorm(_Rounded):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, device=None, dtype=None):
        super().__init__(num_features, eps, momentum, device=device, dtype=dtype)
        self._rounding(1.0, 0)
        self.eval()

    def train(self, mode=True):
        return super().train(False)  # the statistics are fixed


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """nn.BatchNorm2d with fixed statistics."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """nn.BatchNorm3d with fixed statistics."""


def _given(module, weight, bias, scale, zero_point):
    module._parameters["weight"] = None if weight is None else nn.Parameter(weight.detach().clone(), False)
    module._parameters["bias"] = None if bias is None else nn.Parameter(bias.detach().clone(), False)
    module._rounding(scale, zero_point)


class LayerNorm(_Rounded, nn.LayerNorm):
    """nn.LayerNorm."""

    def __init__(self, normalized_shape, weight, bias, scale, zero_point, eps=1e-5, elementwise_affine=True):
        super().__init__(normalized_shape, eps, elementwise_affine)
        _given(self, weight, bias, scale, zero_point)


class GroupNorm(_Rounded, nn.GroupNorm):
    """nn.GroupNorm."""

    def __init__(self, num_groups, num_channels, weight, bias, scale, zero_point, eps=1e-5, affine=True):
        super().__init__(num_groups, num_channels, eps, affine)
        _given(self, weight, bias, scale, zero_point)


class _InstanceNorm(_Rounded):
    def __init__(
        self, num_features, weight, bias, scale, zero_point, eps=1e-5, momentum=0.1, affine=False,
        track_running_stats=False,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        _given(self, weight, bias, scale, zero_point)


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """nn.InstanceNorm1d."""


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """nn.InstanceNorm2d."""


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """nn.InstanceNorm3d."""
