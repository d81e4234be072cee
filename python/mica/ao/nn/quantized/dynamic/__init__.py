"""Modules with quantized weights that take float32 and quantize it as it comes."""

from mica import _C
from mica.ao.nn.quantized import functional
from mica.nn import Module

__all__ = ["Linear"]


class Linear(Module):
    """A linear map with a qint8 weight; the input's scale is found at every call."""

    def __init__(self, weight, bias):
        super().__init__()
        self._weight, self._bias = weight, None if bias is None else bias.detach().clone()

    @classmethod
    def from_float(cls, module):
        """The dynamically quantized form of an nn.Linear."""
        weight = module.weight.detach()
        scale = max(float(weight.abs().max()) / 127, 1e-8) if weight.numel() else 1.0
        made = cls(_C.quantize_per_tensor(weight, scale, 0, _C.qint8), module.bias)
        made.in_features, made.out_features = module.in_features, module.out_features
        return made

    def weight(self):
        """The quantized weight."""
        return self._weight

    def bias(self):
        """The bias, in float32."""
        return self._bias

    def forward(self, x):
        return functional.linear(_C.quantize_per_tensor_dynamic(x, _C.quint8, False), self._weight, self._bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, dtype=torch.qint8"
