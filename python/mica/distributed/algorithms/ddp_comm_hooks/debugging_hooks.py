"""A hook that sends nothing, to see what sending costs."""

from mica.futures import Future

__all__ = ["noop_hook"]


def noop_hook(_, bucket):
    """Returns the gradients of this process as they are, so that the processes' parameters drift apart."""
    future = Future()
    future.set_result(bucket.buffer())
    return future
