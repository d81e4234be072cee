"""Half-normal distributions."""

import math

from mica.distributions._half import Half
from mica.distributions.normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(Half):
    """The absolute values of normal numbers of mean zero."""

    @staticmethod
    def _whole(scale):
        return Normal(0, scale, validate_args=False)

    @property
    def mean(self):
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self):
        return self.scale.pow(2) * (1 - 2 / math.pi)
