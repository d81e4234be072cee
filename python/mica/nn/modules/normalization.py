"""Normalisation over trailing dimensions and over groups of channels."""

from mica import _C
from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F
from .. import init
from ..parameter import Parameter

__all__ = ["GroupNorm", "LayerNorm", "RMSNorm"]


def _make_scale_and_shift(module, shape, wanted, bias, device, dtype):
    for name, there in (("weight", wanted), ("bias", wanted and bias)):
        value = Parameter(_C.empty(shape, device=device, dtype=dtype)) if there else None
        module.register_parameter(name, value)


class LayerNorm(options.LayerNorm):
    """Mean zero and variance one over the last dimensions, then a scale and a shift."""

    def _make_parameters(self, bias, device, dtype):
        _make_scale_and_shift(self, self.normalized_shape, self.elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self):
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(options.RMSNorm):
    """A mean square of one over the last dimensions, then a scale."""

    def _make_parameters(self, device, dtype):
        there = self.elementwise_affine
        value = Parameter(_C.empty(self.normalized_shape, device=device, dtype=dtype)) if there else None
        self.register_parameter("weight", value)
        self.reset_parameters()

    def reset_parameters(self):
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(options.GroupNorm):
    """Mean zero and variance one over groups of channels of every sample, then a scale and a shift by channel."""

    def _make_parameters(self, bias, device, dtype):
        _make_scale_and_shift(self, self.num_channels, self.affine, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self):
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
