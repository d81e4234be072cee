"""Modules whose parameters are spread over processes."""

from mica.distributed.fsdp._fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from mica.distributed.fsdp._policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard",
    "register_fsdp_forward_method",
]  # fmt: skip
