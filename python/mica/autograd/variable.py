"""Variable: the name that tensors with a history once had."""

import warnings

from mica import _C


class _Engine:
    """The object that programs use as Variable._execution_engine."""

    @staticmethod
    def queue_callback(callback):
        """Call back when the running backward pass has ended."""
        _C._queue_callback(callback)


class _VariableMeta(type):
    def __instancecheck__(cls, other):
        return isinstance(other, _C.Tensor)


class Variable(metaclass=_VariableMeta):
    """A tensor: Variable(x, requires_grad=...) gives one that shares memory with x."""

    _execution_engine = _Engine()

    def __new__(cls, data=None, requires_grad=False, volatile=None):
        if volatile:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.", stacklevel=2
            )
        if data is None:
            data = _C.empty(0)
        return data.detach().requires_grad_(requires_grad)
