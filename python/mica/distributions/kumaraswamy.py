"""Kumaraswamy distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.transforms import AffineTransform, PowerTransform
from mica.distributions.uniform import Uniform
from mica.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """Much like the beta distribution on [0, 1], with a distribution function in closed form."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _own = ("concentration1", "concentration0")

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        like = self.concentration0
        base_dist = Uniform(mica.full_like(like, 0), mica.full_like(like, 1), validate_args=validate_args)
        steps = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(base_dist, steps, validate_args=validate_args)

    def _moment(self, n):
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * mica.exp(mica.lgamma(a) + mica.lgamma(b) - mica.lgamma(a + b))

    @property
    def mean(self):
        return self._moment(1)

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        log_mode = b.reciprocal() * (-b).log1p() - (-b * a).log1p()
        return log_mode.masked_fill((b < 1) | (a < 1), math.nan).exp()

    @property
    def variance(self):
        return self._moment(2) - mica.pow(self.mean, 2)

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        harmonic = mica.digamma(b + 1) + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - mica.log(a) - mica.log(b)
