"""Backward passes through calls of functions in other processes, which Mica does not have. This module tells so to programs
that ask.
"""

__all__ = ["context", "is_available"]


def is_available():
    """Return False: Mica does not call functions in other processes."""
    return False


class context:
    """Refuses to be entered: there is no distributed backward pass."""

    def __enter__(self):
        raise RuntimeError(
            "torch.distributed.autograd is not available: Mica does not call functions in other processes. "
            "torch.distributed.nn.functional has collectives with gradients."
        )

    def __exit__(self, type, value, traceback):
        pass
