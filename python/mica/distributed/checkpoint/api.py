"""The error of a checkpoint that could not be saved or loaded."""

import traceback

__all__ = ["CheckpointException"]

WRAPPED_EXCEPTION = tuple[BaseException, traceback.StackSummary]


def _wrap_exception(exc):
    """An exception with its stack, in a form that can be sent to other ranks."""
    return exc, traceback.extract_tb(exc.__traceback__)


def _is_wrapped_exception(obj):
    return (
        isinstance(obj, tuple)
        and len(obj) == 2
        and isinstance(obj[0], BaseException)
        and isinstance(obj[1], traceback.StackSummary)
    )


class CheckpointException(BaseException):
    """Raised on all ranks when one of them has failed. It says which rank failed, and how."""

    def __init__(self, msg, failures):
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self):
        """Exceptions and their stacks, by rank."""
        return self._failures

    def __str__(self):
        text = f"CheckpointException ranks:{self._failures.keys()}\n"
        for rank, (error, stack) in self._failures.items():
            text += f"Traceback (most recent call last): (RANK {rank})\n"
            text += "".join(traceback.format_list(stack) if stack is not None else [])
            text += "".join(traceback.format_exception_only(type(error), error))
        return text
