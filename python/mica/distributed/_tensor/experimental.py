"""The older name of torch.distributed.tensor.experimental."""

from mica.distributed.tensor.experimental import *  # noqa: F403
