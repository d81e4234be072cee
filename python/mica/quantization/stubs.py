"""The marks of what is quantized, by the older name: see mica.ao.quantization.stubs."""

from mica.ao.quantization.stubs import (  # noqa: F401
    DeQuantStub,
    QuantStub,
    QuantWrapper,
)
