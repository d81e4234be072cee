"""Generalized Pareto distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.distribution import Distribution
from mica.distributions.utils import all_numbers, broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The distribution of what exceeds a high threshold `loc`; exponential where `concentration` is zero."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    _expands = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(self, loc, scale, concentration, validate_args=None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        batch_shape = mica.Size() if all_numbers(loc, scale, concentration) else self.loc.size()
        super().__init__(batch_shape, validate_args=validate_args)

    def _shape_or_one(self):
        """Where the concentration is zero, and the concentration with ones there."""
        zero = mica.isclose(self.concentration, mica.zeros_like(self.concentration))
        return zero, mica.where(zero, mica.ones_like(self.concentration), self.concentration)

    def _z(self, x):
        return (x - self.loc) / self.scale

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        return self.icdf(mica.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        zero, shape = self._shape_or_one()
        power = 1 / shape + mica.ones_like(z)
        curved = mica.where(power == 0, power, power * mica.log1p(shape * z))
        return -self.scale.log() - mica.where(zero, z, curved)

    def log_survival_function(self, value):
        """The logarithm of the probability of more than `value`."""
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        zero, shape = self._shape_or_one()
        return mica.where(zero, -z, -mica.log1p(shape * z) / shape)

    def log_cdf(self, value):
        """The logarithm of the probability of at most `value`."""
        return mica.log1p(-mica.exp(self.log_survival_function(value)))

    def cdf(self, value):
        return mica.exp(self.log_cdf(value))

    def icdf(self, value):
        zero, shape = self._shape_or_one()
        above = mica.log1p(-value)
        curved = self.loc + self.scale / shape * mica.expm1(-shape * above)
        return mica.where(zero, self.loc - self.scale * above, curved)

    def _moment(self, bound, stand_in, formula):
        valid = self.concentration < bound
        return mica.where(valid, formula(mica.where(valid, self.concentration, stand_in)), math.nan)

    @property
    def mean(self):
        return self._moment(1, 0.5, lambda c: self.loc + self.scale / (1 - c))

    @property
    def variance(self):
        return self._moment(0.5, 0.25, lambda c: self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)))

    def entropy(self):
        return mica.broadcast_to(mica.log(self.scale) + self.concentration + 1, self._batch_shape)

    @property
    def mode(self):
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        end = mica.where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, end)
