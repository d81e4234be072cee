"""Linear maps with qint8 weights that are mostly zeros: only what is not zero is multiplied."""

from mica.ao.nn.sparse.quantized import dynamic
from mica.ao.nn.sparse.quantized.linear import Linear, LinearPackedParams

__all__ = ["Linear", "LinearPackedParams", "dynamic"]
