"""Whether processes can compute together: not yet. Programs ask before they try."""

__all__ = ["is_available", "is_initialized"]


def is_available():
    """False: Mica has no process groups yet."""
    return False


def is_initialized():
    """False: there is no process group to start."""
    return False


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(
        f"module 'torch.distributed' has no attribute {name!r}: Mica has no process groups yet, "
        "and torch.distributed.is_available() is False"
    )
