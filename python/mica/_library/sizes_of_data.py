"""Results of operators of one's own whose sizes only data decide: their fake functions are run where such sizes have symbols."""

import contextvars

__all__ = ["SizeOfData", "current_env", "fake_result"]

_env = contextvars.ContextVar("the environment of the fake function that runs", default=None)


class SizeOfData(NotImplementedError):
    """The error of a fake function that asks for a size that only data decide, where that is impossible."""


def current_env():
    return _env.get()


def fake_result(mode, operator, args, kwargs):
    """The result of an operator's fake function for fake tensors, with symbols for sizes that only data decide."""
    token = _env.set(mode.shape_env)
    try:
        with mode:
            return operator.fake(*args, **kwargs)
    finally:
        _env.reset(token)
