"""Cross entropy of scores that are split by classes."""

import contextlib

from mica.distributed.tensor._rules import modes

__all__ = ["loss_parallel"]


@contextlib.contextmanager
def loss_parallel():
    """In this block cross_entropy and nll_loss take scores that are split by classes as they are.

    No process gathers the scores: they exchange one largest score and two sums for each example. The backward pass
    need not be in the block.
    """
    before, modes.loss_parallel = modes.loss_parallel, True
    try:
        yield
    finally:
        modes.loss_parallel = before
