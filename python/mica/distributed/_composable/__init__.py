"""Older names of what changes a module in place."""

from mica.distributed.fsdp import fully_shard

__all__ = ["fully_shard"]
