# ruff: noqa: F401, F403
"""The classes of networks, one file per family."""

from .module import Module  # isort: skip - the base of all others
from .activation import *
from .adaptive import *
from .attention import *
from .batchnorm import *
from .channelshuffle import *
from .container import *
from .conv import *
from .distance import *
from .dropout import *
from .flatten import *
from .fold import *
from .instancenorm import *
from .linear import *
from .loss import *
from .normalization import *
from .padding import *
from .pixelshuffle import *
from .pooling import *
from .response_norm import *
from .rnn import *
from .sparse import *
from .sparse_bag import *
from .transformer import *
from .upsampling import *

__all__ = [name for name, value in globals().items() if isinstance(value, type)]
