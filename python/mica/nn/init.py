"""Filling tensors with the values that training begins with. The same seed gives the same values as in torch."""

import functools
import warnings

from mica import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica._nn_init import *  # noqa: F403

_functions = {name: value for name, value in vars(_C._nn_init).items() if not name.startswith("__")}
globals().update(_functions)

_calculate_fan_in_and_fan_out = _C._calculate_fans


def calculate_gain(nonlinearity, param=None):
    """The factor by which a nonlinearity is made up for in the standard deviation of the weights before it."""
    if nonlinearity == "leaky_relu" and (isinstance(param, bool) or not isinstance(param, (int, float, type(None)))):
        raise ValueError(f"negative_slope {param} not a valid number")
    return _C._calculate_gain(nonlinearity, param if nonlinearity == "leaky_relu" else None)


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def _old_name(function):
    """The function under its name of old, which lacks the underscore."""
    new = function.__name__
    old = new.removesuffix("_")

    @functools.wraps(function)
    def deprecated(*args, **kwargs):
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    deprecated.__name__ = old
    return deprecated


_old_functions = {
    name.removesuffix("_"): _old_name(function)
    for name, function in _functions.items()
    if name not in ("ones_", "zeros_", "trunc_normal_")
}
globals().update(_old_functions)

__all__ = ["calculate_gain", *_functions, *_old_functions]


# What torch calls the parts of its initializers. Packages that bring an initializer of their own take them from here.


def _no_grad_uniform_(tensor, a, b, generator=None):
    with _C._NoGrad():
        return tensor.uniform_(a, b, generator=generator)


def _no_grad_normal_(tensor, mean, std, generator=None):
    with _C._NoGrad():
        return tensor.normal_(mean, std, generator=generator)


def _no_grad_trunc_normal_(tensor, mean, std, a, b, generator=None):
    return _functions["trunc_normal_"](tensor, mean, std, a, b, generator=generator)


def _no_grad_fill_(tensor, val):
    with _C._NoGrad():
        return tensor.fill_(val)


def _no_grad_zero_(tensor):
    with _C._NoGrad():
        return tensor.zero_()
