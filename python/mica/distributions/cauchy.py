"""Cauchy distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.distribution import Distribution
from mica.distributions.utils import all_numbers, broadcast_all

__all__ = ["Cauchy"]


class Cauchy(Distribution):
    """The Cauchy distribution of a median `loc` and half width at half maximum `scale`. It has no mean."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _expands = {"loc": 0, "scale": 0}

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        batch_shape = mica.Size() if all_numbers(loc, scale) else self.loc.size()
        super().__init__(batch_shape, validate_args=validate_args)

    @property
    def mean(self):
        return self._filled(math.nan, self.loc)

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return self._filled(math.inf, self.loc)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        return self.loc + self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return mica.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value):
        return mica.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()
