"""The older name of torch.distributed.tensor.placement_types."""

from mica.distributed.tensor.placement_types import *  # noqa: F403
