"""Laplace distributions."""

import mica
from mica.distributions import constraints
from mica.distributions.distribution import Distribution
from mica.distributions.utils import all_numbers, broadcast_all

__all__ = ["Laplace"]


class Laplace(Distribution):
    """The Laplace distribution: exponential to both sides of `loc`."""

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
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def stddev(self):
        return 2**0.5 * self.scale

    @property
    def variance(self):
        return 2 * self.scale.pow(2)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(mica.finfo(self.loc.dtype).eps - 1, 1)
        return self.loc - self.scale * u.sign() * mica.log1p(-u.abs())

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -mica.log(2 * self.scale) - mica.abs(value - self.loc) / self.scale

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * mica.expm1(-away.abs() / self.scale)

    def icdf(self, value):
        term = value - 0.5
        return self.loc - self.scale * term.sign() * mica.log1p(-2 * term.abs())

    def entropy(self):
        return 1 + mica.log(2 * self.scale)
