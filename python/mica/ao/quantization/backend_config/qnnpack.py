"""What QNNPACK, torch's library for phones, can quantize: quint8, and qint8 around zero with scales that are not too small."""

from mica import _C
from mica.ao.quantization.backend_config.backend_config import BackendConfig, DTypeConfig, DTypeWithConstraints
from mica.ao.quantization.backend_config.native import families, fixed, plain, weighted

__all__ = ["get_qnnpack_backend_config"]

_LEAST_SCALE = 2**-12


def get_qnnpack_backend_config():
    """What can be quantized for qnnpack."""
    values = DTypeWithConstraints(_C.qint8, scale_min_lower_bound=_LEAST_SCALE)
    weights = DTypeWithConstraints(
        _C.qint8, quant_min_lower_bound=-127, quant_max_upper_bound=127, scale_min_lower_bound=_LEAST_SCALE
    )
    signed, signed_weighted = DTypeConfig(values, values), DTypeConfig(values, values, weights, _C.float32)
    made = BackendConfig("qnnpack")
    return made.set_backend_pattern_configs(
        families([signed_weighted, weighted()], [signed, plain()], lambda scale: [signed, fixed(scale)])
    )
