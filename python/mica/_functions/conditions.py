"""Conditions that programs state about their values, by torch's names."""

import builtins

from mica import _C
from mica._functions.wrapping import asked_among


def _assert(condition, message):
    """An assert statement as a function."""
    if asked_among((condition,)):
        return _C._handle_torch_function(_assert, (condition,), condition, message)
    assert condition, message


def _assert_async(condition, message=None):
    """Raise RuntimeError unless a tensor of one element is not zero. On the CPU at once."""
    if asked_among((condition,)):
        return _C._handle_torch_function(
            _assert_async, (condition,), condition, *(() if message is None else (message,))
        )
    if not bool(condition):
        raise RuntimeError("Expected Tensor with single nonzero value, but got zero" if message is None else message)


def _checked(error, cond, message):
    if type(cond).__name__ == "SymBool":  # an open size: decided by what is known, or by the example
        cond = cond.node.shape_env.state(cond.node._expr)
    if not isinstance(cond, builtins.bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        message = "Expected cond to be True, but got False."
    elif not callable(message):
        raise TypeError("message must be a callable")
    else:
        message = str(message())
    raise error(message)


def _check(cond, message=None):
    """Raise RuntimeError, with the text that `message` returns, unless the condition holds."""
    _checked(RuntimeError, cond, message)


def _check_index(cond, message=None):
    """Raise IndexError unless the condition holds."""
    _checked(IndexError, cond, message)


def _check_value(cond, message=None):
    """Raise ValueError unless the condition holds."""
    _checked(ValueError, cond, message)


def _check_type(cond, message=None):
    """Raise TypeError unless the condition holds."""
    _checked(TypeError, cond, message)


def _check_not_implemented(cond, message=None):
    """Raise NotImplementedError unless the condition holds."""
    _checked(NotImplementedError, cond, message)


def _check_tensor_all(cond, message=None):
    """Raise RuntimeError unless the condition holds for every element."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _checked(RuntimeError, cond.all().item(), message)


def _check_with(error_type, cond, message):
    """Raise an exception of a type unless the condition holds."""
    _checked(error_type, cond, message)


def _check_tensor_all_with(error_type, cond, message=None):
    """Raise an exception of a type unless the condition holds for every element."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    _checked(error_type, bool(cond.all()), message)
