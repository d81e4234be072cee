"""Parts of the interface that may still change: functions of parts, and plain tensors among spread ones."""

import contextlib

from mica.distributed.tensor._rules import modes
from mica.distributed.tensor.experimental._attention import context_parallel
from mica.distributed.tensor.experimental._func_map import local_map
from mica.distributed.tensor.experimental._register_sharding import register_sharding

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]


@contextlib.contextmanager
def implicit_replication():
    """In this block plain tensors among the arguments of an operator count as copies on all processes."""
    modes.implicit_replication += 1
    try:
        yield
    finally:
        modes.implicit_replication -= 1
