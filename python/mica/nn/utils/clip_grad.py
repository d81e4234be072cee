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


def _spread_norm(tensors, norm_type):
    """The norm of gradients that are spread over processes, as a tensor with one element that is spread alike."""
    return _C.stack([_C._linalg.vector_norm(tensor, norm_type) for tensor in tensors]).norm(norm_type)


def _scale(gradients, max_norm, total_norm):
    """Scale gradients with the norm total_norm so that it is max_norm at most."""
    if not any(getattr(each, "_is_spread", False) for each in gradients):
        return _C._scale_to_norm_(gradients, max_norm, total_norm)
    whole = total_norm._whole() if getattr(total_norm, "_is_spread", False) else total_norm
    factor = _C.clamp(max_norm / (whole + 1e-6), max=1.0)
    for each in gradients:
        (each._local_tensor if getattr(each, "_is_spread", False) else each).mul_(factor)


@no_grad()
def _get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all elements of the tensors together."""
    norm_type = float(norm_type)
    tensors = _as_list(tensors)
    if any(getattr(tensor, "_is_spread", False) for tensor in tensors):
        total = _spread_norm(tensors, norm_type)
    else:
        total = _C._total_norm(tensors, norm_type)
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
    _scale(_gradients(_as_list(parameters)), float(max_norm), total_norm)


@no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale the gradients of all parameters so that their norm together is max_norm at most; returns what it was.

    Args:
        parameters: a tensor, or several
        max_norm: the largest norm that is left as it is
        norm_type: which norm; inf is the largest absolute value
        error_if_nonfinite: whether a norm that is not finite is an error
        foreach: changes nothing; torch chooses between two kernels by it

    Example::

        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    """
    is_generator = isinstance(parameters, types.GeneratorType)
    parameters = _as_list(parameters)
    if is_generator and not parameters:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    gradients = _gradients(parameters)
    total_norm = _get_total_norm(gradients, norm_type, error_if_nonfinite, foreach)
    _scale(gradients, float(max_norm), total_norm)
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
