"""Gumbel distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.transforms import AffineTransform, ExpTransform
from mica.distributions.uniform import Uniform
from mica.distributions.utils import all_numbers, broadcast_all, euler_constant

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The distribution of the largest of many numbers: loc - scale log(-log u) of uniform u."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _own = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        finfo = mica.finfo(self.loc.dtype)
        low, high = finfo.tiny, 1 - finfo.eps
        if not all_numbers(loc, scale):
            low, high = mica.full_like(self.loc, low), mica.full_like(self.loc, high)
        steps = [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-mica.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=loc, scale=-self.scale),
        ]
        super().__init__(Uniform(low, high, validate_args=validate_args), steps, validate_args=validate_args)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale  # directly: the way back through the steps loses digits
        return (y - y.exp()) - self.scale.log()

    @property
    def mean(self):
        return self.loc + self.scale * euler_constant

    @property
    def mode(self):
        return self.loc

    @property
    def stddev(self):
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self):
        return self.stddev.pow(2)

    def entropy(self):
        return self.scale.log() + (1 + euler_constant)
