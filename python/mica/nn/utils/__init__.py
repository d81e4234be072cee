"""Helpers for training: clipping of gradients, parametrizations, vectors of parameters, packed sequences."""

from mica.nn.utils import parametrize, stateless
from mica.nn.utils.clip_grad import _clip_grads_with_norm_ as clip_grads_with_norm_
from mica.nn.utils.clip_grad import _get_total_norm as get_total_norm
from mica.nn.utils.clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_
from mica.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from mica.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from mica.nn.utils.init import skip_init
from mica.nn.utils.memory_format import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format
from mica.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from mica.nn.utils.weight_norm import remove_weight_norm, weight_norm

from mica.nn.utils import rnn  # isort: skip - it builds on the above

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]


def __getattr__(name):
    import importlib

    if name in ("parametrizations", "prune"):
        return importlib.import_module(f"mica.nn.utils.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
