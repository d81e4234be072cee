"""Parts of distributed training that also serve one process."""

from mica.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
