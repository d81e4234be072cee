"""Parts of networks: modules and their parameters. The functions are in nn.functional."""

from mica.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter  # noqa: F401, I001
from mica.nn.modules import *  # noqa: F403
from mica.nn import functional, init, modules, parameter, utils  # noqa: F401
