"""The flow by modules, by the older name: see mica.ao.quantization.quantize."""

from mica.ao.quantization import (  # noqa: F401
    propagate_qconfig_,
)
from mica.ao.quantization.quantize import (  # noqa: F401
    add_quant_dequant,
    convert,
    prepare,
    prepare_qat,
    quantize,
    quantize_dynamic,
    quantize_qat,
    swap_module,
)
