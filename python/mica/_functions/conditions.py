"""Conditions that programs state about their values, by torch's names."""

import builtins
import sys
import warnings

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
    if _is_recorded() or _is_traced():
        from mica import ops

        given = (condition,) if message is None else (condition, message)
        packet = ops.aten._assert_async
        _C._handle_torch_function(packet.default if message is None else packet.msg, (), *given)
    elif not bool(condition):
        raise RuntimeError("Expected Tensor with single nonzero value, but got zero" if message is None else message)


def _is_recorded():
    """Whether torch.export records what the program computes: what is stated of values is then part of the graph."""
    record = sys.modules.get("mica.export._record")
    return record is not None and record.current() is not None


def _is_traced():
    """Whether make_fx records operators."""
    tracing = sys.modules.get("mica.fx.experimental.proxy_tensor")
    return tracing is not None and tracing.get_proxy_mode() is not None


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
        raise TypeError(f"message must be a callable, but got {type(message).__name__}")
    else:
        message = str(message())
    raise error(message)


def _checked_all(error, cond, message):
    if _is_recorded():
        if message is not None and not callable(message):
            raise TypeError(f"message must be a callable, but got {type(message).__name__}")
        text = "Expected cond to be True, but got False." if message is None else str(message())
        return _assert_async(cond.all(), text)
    _checked(error, cond.all().item(), message)


def _check(cond, message=None):
    """Raise RuntimeError, with the text that `message` returns, unless the condition holds."""
    _checked(RuntimeError, cond, message)


def _check_is_size(i, message=None, *, max=None):
    """Raise RuntimeError unless a number may be a size, which is not negative, and not above `max`."""
    warnings.warn(
        "_check_is_size will be removed in a future PyTorch release along with guard_size_oblivious. "
        "Use _check(i >= 0) instead.",
        FutureWarning,
        stacklevel=2,
    )
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


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
    _checked_all(RuntimeError, cond, message)


def _check_with(error_type, cond, message):
    """Raise an exception of a type unless the condition holds."""
    _checked(error_type, cond, message)


def _check_tensor_all_with(error_type, cond, message=None):
    """Raise an exception of a type unless the condition holds for every element."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _checked_all(error_type, cond, message)
