"""Marks of where a model becomes quantized and float32 again."""

from mica.nn import Module

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class QuantStub(Module):
    """Marks where numbers become quantized: an observer in the prepared model, Quantize in the converted one."""

    def __init__(self, qconfig=None):
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x):
        return x


class DeQuantStub(Module):
    """Marks where numbers become float32 again."""

    def forward(self, x):
        return x


class QuantWrapper(Module):
    """A module between a QuantStub and a DeQuantStub."""

    def __init__(self, module):
        super().__init__()
        if hasattr(module, "qconfig"):
            self.qconfig = module.qconfig
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.module = module

    def forward(self, x):
        return self.dequant(self.module(self.quant(x)))
