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
from .linear_cross_entropy import *
from .linear_cross_entropy_options import *
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

from . import activation, container, loss, normalization, rnn, sparse  # isort: skip

# Classes that torch has in other files than we do: programs import them from there, and pickles name them so.
for _home, _names in {
    activation: ("MultiheadAttention",),
    container: ("ParameterDict", "ParameterList"),
    loss: ("LinearCrossEntropyLoss",),
    normalization: ("CrossMapLRN2d", "LocalResponseNorm"),
    rnn: ("GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"),
    sparse: ("EmbeddingBag",),
}.items():
    for _name in _names:
        setattr(_home, _name, globals()[_name])
        globals()[_name].__module__ = _home.__name__

__all__ = [name for name, value in globals().items() if isinstance(value, type)]
