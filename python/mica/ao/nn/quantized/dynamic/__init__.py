"""Modules with quantized weights that take float32 and quantize it as it comes."""

from mica import _C
from mica.ao.nn.quantized.dynamic.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from mica.ao.nn.quantized.dynamic.rnn import (
    GRU,
    LSTM,
    GRUCell,
    LSTMCell,
    RNNCell,
    dtype_of_weights,
    product,
    quantized_rows,
)
from mica.ao.nn.quantized.layers import save_packed
from mica.nn import Module

__all__ = [
    "GRU",
    "LSTM",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "RNNCell",
]  # fmt: skip


class Linear(Module):
    """A linear map with a qint8 (or float16) weight; the input's scale is found at every call."""

    _version = 4

    def __init__(self, in_features, out_features, bias_=True, dtype=None):
        super().__init__()
        if dtype not in (None, _C.qint8, _C.float16):
            raise RuntimeError(f"Unsupported dtype specified for dynamic quantized Linear: {dtype}")
        self.in_features, self.out_features = in_features, out_features
        self.dtype = _C.qint8 if dtype is None else dtype
        self._weight = quantized_rows(_C.zeros(out_features, in_features), self.dtype)
        self._bias = _C.zeros(out_features) if bias_ else None

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False, dtype=None):
        """The dynamically quantized form of an nn.Linear."""
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, dtype_of_weights(mod, dtype))
        made.set_weight_bias(quantized_rows(mod.weight, made.dtype, mod), mod.bias)
        return made

    def set_weight_bias(self, w, b):
        """Another weight, quantized, and another bias or None."""
        self._weight, self._bias = w, None if b is None else b.detach().clone()

    def weight(self):
        """The quantized weight."""
        return self._weight

    def bias(self):
        """The bias, in float32."""
        return self._bias

    def forward(self, x):
        return product(x, self._weight, self._bias)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        weight = self._weight.float() if self.dtype == _C.float16 else self._weight  # as torch keeps it
        save_packed(destination, prefix, 1.0, 0, self.dtype, weight, self._bias)

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        packed = state_dict.pop(prefix + "_packed_params._packed_params", None)  # torch's name for the pair
        for name in ("_packed_params.dtype", "scale", "zero_point"):
            state_dict.pop(prefix + name, None)
        if packed is None:
            packed = state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias")
        weight, self._bias = packed
        self._weight = quantized_rows(weight, self.dtype) if self.dtype == _C.float16 else weight
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, unexpected, errors)

    def _get_name(self):
        return "DynamicQuantizedLinear"

    def extra_repr(self):
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self.dtype}"
        return text + (f", qscheme={self._weight.qscheme()}" if self.dtype == _C.qint8 else "")
