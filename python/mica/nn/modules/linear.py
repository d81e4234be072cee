"""Affine maps of the last dimension."""

import math

from mica import _C
from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]


class Identity(Module):
    """Returns its input; takes and ignores any arguments."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(options.Linear):
    """An affine map of the last dimension: y = x A^T + b.

    Args:
        in_features: the size of the input's last dimension
        out_features: the size of the result's last dimension
        bias: whether there is a b
        device, dtype: of the parameters

    `weight` is A, of (out_features, in_features), and `bias` is b, of (out_features,). Both start with uniform numbers
    between -1 / sqrt(in_features) and 1 / sqrt(in_features).

    Example::

        layer = nn.Linear(20, 30)
        layer(torch.randn(128, 20)).shape  # (128, 30)
    """

    weight: _C.Tensor

    def _make_parameters(self, bias, device, dtype):
        self.weight = Parameter(_C.empty((self.out_features, self.in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(_C.empty(self.out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear that tools for quantization leave alone: the output projection of attention."""


class Bilinear(options.Bilinear):
    """y = x1^T A x2 + b, with a matrix of A for each output."""

    weight: _C.Tensor

    def _make_parameters(self, bias, device, dtype):
        sizes = (self.out_features, self.in1_features, self.in2_features)
        self.weight = Parameter(_C.empty(sizes, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(_C.empty(self.out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={self.in1_features})")
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear that takes in_features from its first input."""

    weight: UninitializedParameter
    bias: UninitializedParameter

    cls_to_become = Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to in_features from "
                    f"self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]
