"""A module in several processes."""

from mica.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Needs process groups, which Mica does not have yet."""

    def __init__(self, module, *args, **kwargs):
        super().__init__()
        raise RuntimeError(
            "Default process group has not been initialized: Mica has no process groups yet, "
            "train in one process without DistributedDataParallel"
        )
