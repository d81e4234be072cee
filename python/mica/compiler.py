"""What programs ask and say about compilation: nothing is compiled."""

__all__ = [
    "allow_in_graph", "assume_constant_result", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
]  # fmt: skip


def is_compiling():
    """False."""
    return False


def is_dynamo_compiling():
    """False."""
    return False


def is_exporting():
    """False."""
    return False


def disable(fn=None, recursive=True, *, reason=None):
    """The function itself, with arguments or without."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn):
    """The function itself."""
    return fn


def assume_constant_result(fn):
    """The function itself."""
    return fn


def cudagraph_mark_step_begin():
    """Nothing to mark."""


def reset():
    """Nothing to forget."""


def list_backends(exclude_tags=("debug", "experimental")):
    """None."""
    return []
