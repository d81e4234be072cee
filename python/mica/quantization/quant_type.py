"""The ways to quantize, by the older name: see mica.ao.quantization.quant_type."""

from mica.ao.quantization.quant_type import (  # noqa: F401
    QuantType,
)
