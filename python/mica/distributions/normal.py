"""Normal distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.exp_family import ExponentialFamily
from mica.distributions.utils import _standard_normal, all_numbers, broadcast_all

__all__ = ["Normal"]

_HALF_LOG_TWO_PI = math.log(math.sqrt(2 * math.pi))


class Normal(ExponentialFamily):
    """The normal (Gaussian) distribution of a mean `loc` and a standard deviation `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _mean_carrier_measure = 0
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
        return self.scale

    @property
    def variance(self):
        return self.stddev.pow(2)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        with mica.no_grad():
            return mica.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        return self.loc + _standard_normal(shape, dtype=self.loc.dtype, device=self.loc.device) * self.scale

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc) ** 2 / (2 * self.scale**2)
        return -distance - self.scale.log() - _HALF_LOG_TWO_PI

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 0.5 * (1 + mica.erf((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)))

    def icdf(self, value):
        return self.loc + self.scale * mica.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + mica.log(self.scale)

    @property
    def _natural_params(self):
        return self.loc / self.scale.pow(2), -0.5 * self.scale.pow(2).reciprocal()

    def _log_normalizer(self, x, y):
        return -0.25 * x.pow(2) / y + 0.5 * mica.log(-math.pi / y)
