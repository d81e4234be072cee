"""The layer that mixes groups of channels."""

from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F

__all__ = ["ChannelShuffle"]


class ChannelShuffle(options.ChannelShuffle):
    """The channels of `groups` equal groups, taken in turn."""

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)
