"""Layers of quantized numbers, by their older name: see mica.ao.nn.quantized."""

from mica.nn.quantized.functional_modules import FloatFunctional  # noqa: F401


def __getattr__(name):
    from mica.ao.nn import quantized

    return getattr(quantized, name)
