"""Modules on several devices. DataParallel takes the CPU or one GPU; several GPUs need a process for each."""

from mica.nn.parallel.data_parallel import DataParallel, data_parallel
from mica.nn.parallel.distributed import DistributedDataParallel
from mica.nn.parallel.parallel_apply import parallel_apply
from mica.nn.parallel.replicate import replicate
from mica.nn.parallel.scatter_gather import gather, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate",
           "scatter"]  # fmt: skip
