"""Modules that take and return quantized tensors."""

from mica import _C
from mica.ao.nn.quantized import functional
from mica.nn import Module

__all__ = ["Conv2d", "DeQuantize", "Embedding", "Linear", "QFunctional", "Quantize", "functional"]


def quantized_weight(module):
    """The module's weight as its qconfig's weight observer says."""
    observer = module.qconfig.weight()
    observer(module.weight.detach())
    scale, zero_point = observer.calculate_qparams()
    if observer.qscheme in (_schemes().per_channel_affine, _schemes().per_channel_symmetric):
        return _C.quantize_per_channel(module.weight.detach(), scale, zero_point, observer.ch_axis, observer.dtype)
    return _C.quantize_per_tensor(module.weight.detach(), float(scale), int(zero_point), observer.dtype)


def _schemes():
    from mica._functions import quantization_schemes as _quantization_schemes

    return _quantization_schemes


class _WithWeight(Module):
    """What quantized layers share: a weight, a bias, and the scale and zero point of what they return."""

    def __init__(self, weight, bias, scale, zero_point):
        super().__init__()
        self._weight, self._bias = weight, None if bias is None else bias.detach().clone()
        self.scale, self.zero_point = float(scale), int(zero_point)

    def weight(self):
        """The quantized weight."""
        return self._weight

    def bias(self):
        """The bias, in float32."""
        return self._bias

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"], destination[prefix + "bias"] = self._weight, self._bias
        destination[prefix + "scale"] = _C.tensor(self.scale)
        destination[prefix + "zero_point"] = _C.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        self._weight, self._bias = state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias")
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, unexpected, errors)


class Linear(_WithWeight):
    """A linear map of quantized tensors, with integer products."""

    @classmethod
    def from_float(cls, module):
        """The quantized form of an observed nn.Linear."""
        made = cls(quantized_weight(module), module.bias, *module.activation_post_process.calculate_qparams())
        made.in_features, made.out_features = module.in_features, module.out_features
        return made

    def forward(self, x):
        return functional.linear(x, self._weight, self._bias, self.scale, self.zero_point)

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, "
            f"zero_point={self.zero_point}, qscheme={self._weight.qscheme()}"
        )


class Conv2d(_WithWeight):
    """A convolution of quantized images, with integer products."""

    @classmethod
    def from_float(cls, module):
        """The quantized form of an observed nn.Conv2d."""
        if module.padding_mode != "zeros" or isinstance(module.padding, str):
            raise NotImplementedError("quantized Conv2d: padding_mode='zeros' with a number of pixels is there")
        made = cls(quantized_weight(module), module.bias, *module.activation_post_process.calculate_qparams())
        made._geometry = (module.stride, module.padding, module.dilation, module.groups)
        return made

    def forward(self, x):
        return functional.conv2d(x, self._weight, self._bias, *self._geometry, self.scale, self.zero_point)


class Embedding(Module):
    """A table of qint8 rows, each with its scale; lookups return float32."""

    def __init__(self, weight):
        super().__init__()
        self._weight = weight

    @classmethod
    def from_float(cls, module):
        """The quantized form of an nn.Embedding."""
        rows = module.weight.detach()
        scales = (rows.abs().amax(1) / 127).clamp_min(1e-8)
        return cls(_C.quantize_per_channel(rows, scales, _C.zeros(len(rows), dtype=_C.int64), 0, _C.qint8))

    def weight(self):
        """The quantized table."""
        return self._weight

    def forward(self, indices):
        rows = self._weight.int_repr()[indices].float()
        return rows * self._weight.q_per_channel_scales().float()[indices].unsqueeze(-1)


class Quantize(Module):
    """float32 to a quantized tensor, with fixed parameters."""

    def __init__(self, scale, zero_point, dtype):
        super().__init__()
        self.scale, self.zero_point, self.dtype = float(scale), int(zero_point), dtype

    @classmethod
    def from_float(cls, module):
        """What an observed QuantStub becomes."""
        observer = module.activation_post_process
        return cls(*observer.calculate_qparams(), observer.dtype)

    def forward(self, x):
        return _C.quantize_per_tensor(x, self.scale, self.zero_point, self.dtype)

    def extra_repr(self):
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """A quantized tensor to float32."""

    @classmethod
    def from_float(cls, module):
        """What a DeQuantStub becomes."""
        return cls()

    def forward(self, x):
        return x.dequantize()


class QFunctional(Module):
    """Sums and products of quantized tensors, quantized again."""

    def __init__(self, scale=1.0, zero_point=0):
        super().__init__()
        self.scale, self.zero_point = float(scale), int(zero_point)

    @classmethod
    def from_float(cls, module):
        """What an observed FloatFunctional becomes."""
        return cls(*module.activation_post_process.calculate_qparams())

    def _again(self, x, like):
        return _C.quantize_per_tensor(x, self.scale, self.zero_point, like.dtype)

    def add(self, x, y):
        """x + y"""
        return self._again(x.dequantize() + y.dequantize(), x)

    def add_relu(self, x, y):
        """relu(x + y)"""
        return self._again((x.dequantize() + y.dequantize()).relu(), x)

    def mul(self, x, y):
        """x * y"""
        return self._again(x.dequantize() * y.dequantize(), x)

    def cat(self, tensors, dim=0):
        """The tensors joined."""
        return self._again(_C.cat([t.dequantize() for t in tensors], dim), tensors[0])


from mica.ao.nn.quantized import dynamic  # noqa: E402, F401 - it needs what stands above
