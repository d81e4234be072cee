"""What the libraries that torch chooses on x86-64 can quantize."""

from mica import _C
from mica.ao.quantization.backend_config import operators
from mica.ao.quantization.backend_config.backend_config import BackendConfig, DTypeConfig
from mica.ao.quantization.backend_config.native import families, plain, weighted

__all__ = ["get_x86_backend_config"]


def _fixed(scale):
    """The dtypes of operations with a fixed scale, which name those of a weight too."""
    return [DTypeConfig(*[operators.with_scale(_C.quint8, scale)] * 2, _C.qint8, _C.float32)]


def get_x86_backend_config():
    """What can be quantized for x86-64."""
    made = BackendConfig("x86")
    made.set_backend_pattern_configs(families([weighted()], [plain()], _fixed, products=[weighted()]))
    return made.set_backend_pattern_configs(operators.shape_questions([plain()]))
