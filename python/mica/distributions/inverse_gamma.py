"""Inverse gamma distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.gamma import Gamma
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """The reciprocals of gamma numbers."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _own = ()

    def __init__(self, concentration, rate, validate_args=None):
        base_dist = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base_dist, PowerTransform(-base_dist.rate.new_ones(())), validate_args=validate_args)

    @property
    def concentration(self):
        """The shape of the gamma distribution."""
        return self.base_dist.concentration

    @property
    def rate(self):
        """The rate of the gamma distribution: the scale of this one."""
        return self.base_dist.rate

    @property
    def mean(self):
        return mica.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self):
        return self.rate / (self.concentration + 1)

    @property
    def variance(self):
        finite = self.rate.square() / ((self.concentration - 1).square() * (self.concentration - 2))
        return mica.where(self.concentration > 2, finite, math.inf)

    def entropy(self):
        return (
            self.concentration
            + self.rate.log()
            + self.concentration.lgamma()
            - (1 + self.concentration) * self.concentration.digamma()
        )
