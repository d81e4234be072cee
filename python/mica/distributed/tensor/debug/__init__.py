"""What collectives a program calls, and how tensors lie on the ranks."""

from mica.distributed.tensor.debug._comm_mode import CommDebugMode
from mica.distributed.tensor.debug._pictures import visualize_sharding

__all__ = ["CommDebugMode", "visualize_sharding"]
