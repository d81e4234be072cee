"""Functions as modules: a tool that quantization would replace."""

import mica
from mica.nn.modules.module import Module

__all__ = ["FloatFunctional"]


class FloatFunctional(Module):
    """Sums, products and concatenations as methods of a module."""

    def forward(self, x):
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x, y):
        return mica.add(x, y)

    add_scalar = add

    def mul(self, x, y):
        return mica.mul(x, y)

    mul_scalar = mul

    def matmul(self, x, y):
        return mica.matmul(x, y)

    def cat(self, x, dim=0):
        return mica.cat(x, dim=dim)

    def add_relu(self, x, y):
        return mica.relu(mica.add(x, y))
