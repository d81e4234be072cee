"""What backends can quantize, and how `prepare_fx` and `convert_fx` are told."""

from mica.ao.quantization.backend_config.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from mica.ao.quantization.backend_config.fbgemm import get_fbgemm_backend_config
from mica.ao.quantization.backend_config.native import get_native_backend_config, get_native_backend_config_dict
from mica.ao.quantization.backend_config.qnnpack import get_qnnpack_backend_config
from mica.ao.quantization.backend_config.tensorrt import get_tensorrt_backend_config, get_tensorrt_backend_config_dict
from mica.ao.quantization.backend_config.x86 import get_x86_backend_config

__all__ = [
    "BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType",
    "get_fbgemm_backend_config", "get_native_backend_config", "get_native_backend_config_dict",
    "get_qnnpack_backend_config", "get_tensorrt_backend_config", "get_tensorrt_backend_config_dict",
    "get_x86_backend_config",
]  # fmt: skip
