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
    """Gives the last dimensions mean zero and variance one, then scales and shifts each of their elements.

    Args:
        normalized_shape: the sizes of the last dimensions, or of the last one
        eps: is added to the variance, so that nothing is divided by zero
        elementwise_affine: whether there are a trained `weight` and `bias` of normalized_shape
        bias: whether there is a `bias`
        device, dtype: of the parameters

    Example::

        layer = nn.LayerNorm(64)
        layer(torch.randn(8, 10, 64)).shape  # (8, 10, 64)
    """

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
    """Gives the last dimensions a mean square of one, then scales each of their elements.

    Args:
        normalized_shape: the sizes of the last dimensions, or of the last one
        eps: is added to the mean square; None takes the dtype's own
        elementwise_affine: whether there is a trained `weight` of normalized_shape
        device, dtype: of the weight
    """

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
    """Gives groups of channels of every sample mean zero and variance one, then scales and shifts each channel.

    Args:
        num_groups: into how many groups the channels are divided
        num_channels: the number of channels of the input, (batch, channels, ...)
        eps: is added to the variance, so that nothing is divided by zero
        affine: whether there are a trained `weight` and `bias` for each channel
        device, dtype: of the parameters
    """

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
