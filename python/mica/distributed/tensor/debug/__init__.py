"""What collectives a program calls."""

from mica.distributed.tensor.debug._comm_mode import CommDebugMode

__all__ = ["CommDebugMode"]
