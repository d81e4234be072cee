"""Half-Cauchy distributions."""

import math

from mica.distributions._half import Half
from mica.distributions.cauchy import Cauchy

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """The absolute values of Cauchy numbers of median zero."""

    @staticmethod
    def _whole(scale):
        return Cauchy(0, scale, validate_args=False)

    @property
    def mean(self):
        return self._filled(math.inf, self.scale)

    @property
    def variance(self):
        return self.base_dist.variance
