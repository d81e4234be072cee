"""Layers of quantized numbers: not in Mica, but for what also serves other numbers."""

from mica.nn.quantized.functional_modules import FloatFunctional  # noqa: F401
