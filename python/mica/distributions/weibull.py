"""Weibull distributions."""

import mica
from mica.distributions import constraints
from mica.distributions.exponential import Exponential
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.transforms import AffineTransform, PowerTransform
from mica.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """A power of an exponential number, scaled."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base_dist = Exponential(mica.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base_dist, self._steps(), validate_args=validate_args)

    def _steps(self):
        return [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Weibull, _instance)
        batch_shape = mica.Size(batch_shape)
        for name in ("scale", "concentration", "concentration_reciprocal"):
            setattr(new, name, getattr(self, name).expand(batch_shape))
        new.transforms = new._steps()
        new.base_dist = self.base_dist.expand(batch_shape)
        return self._complete(new, batch_shape)

    @property
    def mean(self):
        return self.scale * mica.exp(mica.lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self):
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration.reciprocal()

    @property
    def variance(self):
        second = mica.exp(mica.lgamma(1 + 2 * self.concentration_reciprocal))
        return self.scale.pow(2) * (second - mica.exp(2 * mica.lgamma(1 + self.concentration_reciprocal)))

    def entropy(self):
        shape = self.concentration_reciprocal
        return euler_constant * (1 - shape) + mica.log(self.scale * shape) + 1
