"""Parts of networks. The functions are in nn.functional."""

from mica.nn import functional
from mica.nn.parameter import Parameter

__all__ = ["Parameter", "functional"]
