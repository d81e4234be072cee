"""The older name of torch.distributed.tensor."""

from mica.distributed.tensor import *  # noqa: F403
