"""The patterns that backends have in common, by families. A backend says which families it takes with which dtypes."""

import operator
from collections import namedtuple

from mica import _C, nn
from mica.ao.nn import intrinsic as nni
from mica.ao.nn import qat
from mica.ao.nn.intrinsic import qat as nniqat
from mica.ao.nn.quantized import reference as nnqr
from mica.ao.quantization.backend_config.backend_config import (
    BackendPatternConfig,
    DTypeWithConstraints,
    ObservationType,
)
from mica.ao.quantization.fuse_modules import get_fuser_method
from mica.nn import functional as F

__all__ = [
    "FixedScale", "arithmetic", "cat", "convolutions", "default_operations", "embeddings", "fixed_scales",
    "layer_norms", "linear_maps", "matmul", "norms", "recurrent", "shape_questions", "shared_scales", "with_scale",
]  # fmt: skip

_OWN, _SHARED = (
    ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT,
    ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT,
)
_WEIGHT_AND_BIAS = {"weight": 1, "bias": 2}
FixedScale = namedtuple("FixedScale", ["scale", "zero_point"])
_UNIT, _SIGNED_UNIT = FixedScale(1.0 / 256.0, 0), FixedScale(2.0 / 256.0, 128)

_FIXED = {
    **dict.fromkeys((nn.Hardsigmoid, F.hardsigmoid, "hardsigmoid", "hardsigmoid_"), _UNIT),
    **dict.fromkeys((nn.Sigmoid, _C.sigmoid, "sigmoid", "sigmoid_", nn.Softmax), _UNIT),
    **dict.fromkeys((nn.Tanh, _C.tanh, "tanh", "tanh_"), _SIGNED_UNIT),
}
_DEFAULT = (
    nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.Dropout, nn.PReLU,
    F.elu, F.hardswish, F.leaky_relu, F.dropout,
)  # fmt: skip
_SHARING = (
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.Hardtanh, nn.Identity, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.PixelShuffle, nn.PixelUnshuffle, nn.ReLU,
    nn.ReLU6, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.hardtanh, F.hardtanh_,
    F.interpolate, F.max_pool1d, F.max_pool2d, F.max_pool3d, F.pixel_shuffle, F.pixel_unshuffle, F.relu, F.relu6,
    F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, _C.clamp, _C.flatten, _C.mean, _C.narrow, _C.repeat_interleave,
    _C.transpose, _C.squeeze, _C.stack, _C.unsqueeze, operator.floordiv, "contiguous", "clamp", "detach", "detach_",
    "mean", "permute", "repeat", "repeat_interleave", "reshape", "resize_", "relu", "relu_", "squeeze", "squeeze_",
    "transpose", "unsqueeze", "unsqueeze_", "view",
)  # fmt: skip


def _pattern(pattern, dtypes, observation=_OWN):
    return BackendPatternConfig(pattern).set_observation_type(observation).set_dtype_configs(dtypes)


def _layer(kind, dtypes, root, trained=None):
    """A layer with a weight. Its trained form is a pattern too."""
    reference = getattr(nnqr, root.__name__)
    made = [_pattern(kind, dtypes).set_root_module(root).set_reference_quantized_module(reference)]
    if trained is not None:
        made[0].set_qat_module(trained)
        made.append(_pattern(trained, dtypes).set_root_module(root).set_reference_quantized_module(reference))
    return made


def _joined(pattern, dtypes, fused):
    """Modules that follow each other, which become one; a function among them becomes the module that computes the same."""
    kinds = [nn.ReLU if each is F.relu else each for each in pattern]
    made = _pattern(pattern, dtypes).set_fuser_method(get_fuser_method(kinds))
    return made if fused is None else made.set_fused_module(fused)


def _function(function, dtypes):
    yield _pattern(function, dtypes)._set_input_type_to_index(dict(_WEIGHT_AND_BIAS))
    yield _pattern((function, nn.ReLU), dtypes)
    yield _pattern((function, F.relu), dtypes)


def _trained_only(kind, dtypes, trained, root):
    """A joined module that only training knows, and its trained form."""
    yield _pattern(kind, dtypes).set_qat_module(trained)
    yield _pattern(trained, dtypes).set_root_module(root).set_reference_quantized_module(getattr(nnqr, root.__name__))


def _convolution(dims, dtypes):
    conv, norm = getattr(nn, f"Conv{dims}d"), getattr(nn, f"BatchNorm{dims}d")
    with_relu, with_norm, with_both = (
        f"ConvReLU{dims}d",
        f"ConvBn{dims}d",
        f"ConvBnReLU{dims}d",
    )
    yield from _layer(conv, dtypes, conv, getattr(qat, conv.__name__))
    yield from _function(getattr(F, f"conv{dims}d"), dtypes)
    for relu in (nn.ReLU, F.relu):
        yield _joined((conv, relu), dtypes, getattr(nni, with_relu))
    yield from _trained_only(getattr(nni, with_relu), dtypes, getattr(nniqat, with_relu), conv)
    yield _joined((conv, norm), dtypes, getattr(nni, with_norm))
    yield _joined((conv, norm, nn.ReLU), dtypes, getattr(nni, with_both))
    yield _joined((conv, norm, F.relu), dtypes, getattr(nni, with_both)).set_root_module(conv)
    for name in (with_norm, with_both):
        yield from _trained_only(getattr(nni, name), dtypes, getattr(nniqat, name), conv)
    back = getattr(nn, f"ConvTranspose{dims}d")
    yield from _layer(back, dtypes, back)
    joined = _joined((back, norm), dtypes, None)
    yield joined.set_root_module(back).set_reference_quantized_module(getattr(nnqr, back.__name__))
    function = getattr(F, f"conv_transpose{dims}d")
    yield _pattern(function, dtypes)._set_input_type_to_index(dict(_WEIGHT_AND_BIAS))


def convolutions(dtypes):
    """Convolutions and transposed ones, alone and joined with what follows them."""
    return [config for dims in (1, 2, 3) for config in _convolution(dims, dtypes)]


def linear_maps(dtypes):
    """Linear maps, alone and joined with what follows them."""
    made = _layer(nn.Linear, dtypes, nn.Linear, qat.Linear)
    made += _function(F.linear, dtypes)
    made += [_joined((nn.Linear, relu), dtypes, nni.LinearReLU) for relu in (nn.ReLU, F.relu)]
    made += _layer(nni.LinearReLU, dtypes, nn.Linear, nniqat.LinearReLU)
    made.append(_joined((nn.Linear, nn.BatchNorm1d), dtypes, nni.LinearBn1d))
    return made + _layer(nni.LinearBn1d, dtypes, nn.Linear, nniqat.LinearBn1d)


def arithmetic(dtypes):
    """Sums and products, with relu behind them too. Where one of two is a number, the result has the scale of the tensor."""
    observed = {0: _OWN, 1: _SHARED, 2: _OWN}
    made = []
    for function in (operator.add, _C.add, operator.mul, _C.mul):
        for pattern in ((function, nn.ReLU), (function, F.relu), (function, _C.relu), function):
            made.append(_pattern(pattern, dtypes)._set_num_tensor_args_to_observation_type(dict(observed)))
    return made


def matmul(dtypes):
    """Products of two matrices."""
    return [_pattern(_C.matmul, dtypes)]


def cat(dtypes):
    """Joining along a dimension: all have the scale of the first."""
    return [_pattern(_C.cat, dtypes, _SHARED)]


def default_operations(dtypes):
    """Operations of one input whose output has a scale of its own."""
    made = [_pattern(each, dtypes) for each in _DEFAULT]
    made.append(_pattern(F.group_norm, dtypes)._set_input_type_to_index({"weight": 2, "bias": 3}))
    made.append(_pattern(F.instance_norm, dtypes)._set_input_type_to_index({"weight": 3, "bias": 4}))
    return made


def layer_norms(dtypes):
    """Layer normalization."""
    named = _pattern(F.layer_norm, dtypes)._set_input_type_to_index({"weight": 2, "bias": 3})
    return [_pattern(nn.LayerNorm, dtypes), named]


def norms(dtypes):
    """Batch normalization that no layer stands before."""
    made = []
    for dims in (2, 3):
        norm, fused = getattr(nn, f"BatchNorm{dims}d"), getattr(nni, f"BNReLU{dims}d")
        made += [_joined((norm, relu), dtypes, fused) for relu in (nn.ReLU, F.relu)]
        made += [_pattern(norm, dtypes), _pattern(fused, dtypes)]
    return made


def with_scale(dtype, fixed):
    """A dtype of which only the integers from 0 to 255 with one scale and one zero point are taken."""
    return DTypeWithConstraints(
        dtype=dtype, quant_min_lower_bound=0, quant_max_upper_bound=255, scale_exact_match=fixed.scale,
        zero_point_exact_match=fixed.zero_point,
    )  # fmt: skip


def fixed_scales(dtypes_of):
    """Operations whose results lie in a range that is known. dtypes_of(fixed) says the dtypes for a scale."""
    return [_pattern(each, dtypes_of(fixed)) for each, fixed in _FIXED.items()]


def shared_scales(dtypes):
    """Operations that move or choose numbers: the output has the scale of the input."""
    return [_pattern(each, dtypes, _SHARED) for each in _SHARING]


def shape_questions(dtypes):
    """Operations that ask for a tensor's sizes, and not for its numbers."""
    return [_pattern(name, dtypes, ObservationType.INPUT_OUTPUT_NOT_OBSERVED) for name in ("shape", "size")]


def recurrent(dtypes):
    """Recurrent layers and their cells."""
    kinds = (nn.GRUCell, nn.LSTMCell, nn.RNNCell, nn.LSTM, nn.GRU)
    return [config for kind in kinds for config in _layer(kind, dtypes, kind)]


def embeddings(dtypes):
    """Tables and their bags."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return [config for kind in kinds for config in _layer(kind, dtypes, kind, getattr(qat, kind.__name__))]
