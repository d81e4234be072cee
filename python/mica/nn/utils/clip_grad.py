"""Keeping gradients within bounds."""

import math
import types
import warnings

from mica import _C
from mica._C import Tensor
from mica.autograd.grad_mode import no_grad

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_"]


def _as_list(tensors):
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _gradients(parameters):
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


@no_grad()
def _get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all elements of the tensors together."""
    norm_type = float(norm_type)
    total = _C._total_norm(_as_list(tensors), norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


@no_grad()
def _clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scale the gradients, whose norm is total_norm, so that it is max_norm at most."""
    _C._scale_to_norm_(_gradients(_as_list(parameters)), float(max_norm), total_norm)


@no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale the gradients of all parameters so that their norm together is max_norm at most; returns what it was."""
    is_generator = isinstance(parameters, types.GeneratorType)
    parameters = _as_list(parameters)
    if is_generator and not parameters:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    gradients = _gradients(parameters)
    total_norm = _get_total_norm(gradients, norm_type, error_if_nonfinite, foreach)
    _C._scale_to_norm_(gradients, float(max_norm), total_norm)
    return total_norm


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The name of old of clip_grad_norm_."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clamp all elements of the gradients to [-clip_value, clip_value]."""
    bound = float(clip_value)
    for gradient in _gradients(_as_list(parameters)):
        gradient.clamp_(min=-bound, max=bound)
