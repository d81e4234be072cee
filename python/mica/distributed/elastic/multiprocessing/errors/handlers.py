"""Which handler records the errors of a process."""

from mica.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

__all__ = ["get_error_handler"]


def get_error_handler():
    return ErrorHandler()
