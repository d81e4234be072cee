"""Whether autograd records: context managers that are decorators too."""

import _thread  # importing threading with the package would load much else

from mica import _C
from mica.utils._contextlib import (
    _DecoratorContextManager,
    _NoParamDecoratorContextManager,
)

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class no_grad(_C._NoGrad, _NoParamDecoratorContextManager):
    """Record nothing for backward: results do not require grad. A context manager, and a decorator.

    Example::

        with torch.no_grad():
            prediction = model(x)  # prediction.requires_grad is False
    """


class enable_grad(_C._EnableGrad, _NoParamDecoratorContextManager):
    """Record for backward again, within a `no_grad` block. A context manager, and a decorator."""


class set_grad_enabled(_DecoratorContextManager):
    """Record or not, from the call on; as a context manager until the end of the block."""

    def __init__(self, mode):
        self.prev = _C._exchange_grad_enabled(mode)
        self.mode = mode

    def __call__(self, function):
        _C._set_grad_enabled(self.prev)
        return super().__call__(function)

    def __enter__(self):
        _C._set_grad_enabled(self.mode)

    def __exit__(self, *exception):
        _C._set_grad_enabled(self.prev)

    def __repr__(self):
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    def clone(self):
        # Made without __init__, which would set the mode already.
        copy = object.__new__(type(self))
        copy.prev = _C.is_grad_enabled()
        copy.mode = self.mode
        return copy


class inference_mode(_DecoratorContextManager):
    """Record nothing and count no versions: results cannot take part in autograd later."""

    def __new__(cls, mode=True):
        return super().__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode=True):
        self.mode = mode

    def __enter__(self):
        self._before = _C._enter_inference_mode(self.mode)

    def __exit__(self, *exception):
        _C._leave_inference_mode(self._before)

    def clone(self):
        return type(self)(self.mode)


_kept = _thread._local()


def is_multithreading_enabled():
    """The setting of set_multithreading_enabled on this thread."""
    return getattr(_kept, "multithreading", True)


class set_multithreading_enabled(_DecoratorContextManager):
    """Set torch's switch for backward passes on several threads, from the call on or in a `with` block.

    It changes nothing: a backward pass runs on the thread that asks for it.
    """

    def __init__(self, mode):
        self._before = is_multithreading_enabled()
        _kept.multithreading = self.mode = bool(mode)

    def __call__(self, function):
        _kept.multithreading = self._before  # a decorator counts while its function runs
        return super().__call__(function)

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        _kept.multithreading = self._before

    def clone(self):
        return type(self)(self.mode)
