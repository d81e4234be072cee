"""What Mica's own quantized kernels can compute: 8-bit activations and weights, and weights alone."""

from mica import _C
from mica.ao.quantization.backend_config import operators
from mica.ao.quantization.backend_config.backend_config import BackendConfig, DTypeConfig

__all__ = ["get_native_backend_config", "get_native_backend_config_dict"]


def weighted():
    """quint8 in and out, qint8 weights."""
    return DTypeConfig(_C.quint8, _C.quint8, _C.qint8, _C.float32)


def plain():
    """quint8 in and out."""
    return DTypeConfig(_C.quint8, _C.quint8)


def dynamic():
    """float32 in and out; the input is quantized in each call."""
    return [
        DTypeConfig(_C.quint8, _C.float32, _C.qint8, _C.float32, True),
        DTypeConfig(_C.float16, _C.float32, _C.float16, _C.float32, True),
    ]


def weight_only():
    """float32 in and out; the table is quantized."""
    return [DTypeConfig(_C.float32, _C.float32, dtype) for dtype in (_C.quint8, _C.quint4x2)]


def fixed(scale):
    """quint8 in and out, with one scale."""
    return DTypeConfig(*[operators.with_scale(_C.quint8, scale)] * 2)


def families(weights, others, fixed_scales, products=None):
    """The patterns that all backends of CPUs have, with lists of dtypes; that of fixed scales is asked for by the scale."""
    products = others if products is None else products
    return [
        *operators.convolutions(weights),
        *operators.linear_maps([*weights, *dynamic()]),
        *operators.arithmetic(products),
        *operators.matmul(products),
        *operators.cat(others),
        *operators.default_operations(others),
        *operators.fixed_scales(fixed_scales),
        *operators.shared_scales(others),
        *operators.norms(others),
        *operators.recurrent(dynamic()),
        *operators.embeddings(weight_only()),
    ]


def get_native_backend_config():
    """What can be quantized where no backend is named."""
    made = BackendConfig("native")
    made.set_backend_pattern_configs(families([weighted()], [plain()], lambda scale: [fixed(scale)]))
    made.set_backend_pattern_configs(operators.shape_questions([plain()]))
    weight_in_float32 = DTypeConfig(_C.quint8, _C.quint8, _C.float32, _C.float32)
    return made.set_backend_pattern_configs(operators.layer_norms([weight_in_float32]))


def get_native_backend_config_dict():
    """The native backend's configuration as a dictionary."""
    return get_native_backend_config().to_dict()
