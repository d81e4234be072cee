"""What TensorRT can quantize: qint8 throughout."""

from mica import _C
from mica.ao.quantization.backend_config import operators
from mica.ao.quantization.backend_config.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig

__all__ = ["get_tensorrt_backend_config", "get_tensorrt_backend_config_dict"]


def get_tensorrt_backend_config():
    """What can be quantized for TensorRT."""
    weighted = [DTypeConfig(_C.qint8, _C.qint8, _C.qint8, _C.float32)]
    plain = [DTypeConfig(_C.qint8, _C.qint8)]
    product = BackendPatternConfig(_C.addmm).set_dtype_configs(weighted)
    made = BackendConfig("tensorrt").set_backend_pattern_config(
        product._set_input_type_to_index({"bias": 0, "input": 1, "weight": 2})
    )
    families = (operators.convolutions, operators.linear_maps, operators.arithmetic, operators.matmul)
    for family in families:
        made.set_backend_pattern_configs(family(weighted))
    for family in (operators.cat, operators.shared_scales, operators.shape_questions):
        made.set_backend_pattern_configs(family(plain))
    return made


def get_tensorrt_backend_config_dict():
    """TensorRT's configuration as a dictionary."""
    return get_tensorrt_backend_config().to_dict()
