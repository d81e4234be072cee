"""A module on several devices. One device, or none beside the CPU, is served; more come with process groups."""

from mica.nn.parallel.data_parallel import DataParallel, data_parallel
from mica.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
