"""What FBGEMM, torch's library for servers, can quantize."""

from mica.ao.quantization.backend_config import operators
from mica.ao.quantization.backend_config.backend_config import BackendConfig
from mica.ao.quantization.backend_config.native import families, fixed, plain, weighted

__all__ = ["get_fbgemm_backend_config"]


def get_fbgemm_backend_config():
    """What can be quantized for fbgemm."""
    made = BackendConfig("fbgemm")
    made.set_backend_pattern_configs(families([weighted()], [plain()], lambda scale: [fixed(scale)]))
    return made.set_backend_pattern_configs(operators.shape_questions([plain()]))
