"""Quantization by its older name: see mica.ao.quantization."""

# These come first: functions of the same names (fuse_modules, quantize) take the place of modules below.
from mica.quantization import (  # noqa: F401, I001
    fake_quantize,
    fuse_modules,
    fuser_method_mappings,
    observer,
    qconfig,
    quant_type,
    quantize,
    quantize_fx,
    stubs,
)
from mica.ao.quantization import *  # noqa: F403
from mica.ao.quantization import __all__  # noqa: F401
