"""Gamma distributions."""

import mica
from mica import _C
from mica.distributions import constraints
from mica.distributions.exp_family import ExponentialFamily
from mica.distributions.utils import all_numbers, broadcast_all

__all__ = ["Gamma"]


def _standard_gamma(concentration):
    return _C._standard_gamma(concentration)


class Gamma(ExponentialFamily):
    """The gamma distribution of a shape `concentration` and a `rate`."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _expands = {"concentration": 0, "rate": 0}

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        batch_shape = mica.Size() if all_numbers(concentration, rate) else self.concentration.size()
        super().__init__(batch_shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.concentration / self.rate

    @property
    def mode(self):
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self):
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        value = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=mica.finfo(value.dtype).tiny)  # unseen by the graph: the slope stays
        return value

    def log_prob(self, value):
        value = mica.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        return (
            mica.xlogy(self.concentration, self.rate)
            + mica.xlogy(self.concentration - 1, value)
            - self.rate * value
            - mica.lgamma(self.concentration)
        )

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return mica.special.gammainc(self.concentration, self.rate * value)

    def entropy(self):
        return (
            self.concentration
            - mica.log(self.rate)
            + mica.lgamma(self.concentration)
            + (1.0 - self.concentration) * mica.digamma(self.concentration)
        )

    @property
    def _natural_params(self):
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x, y):
        return mica.lgamma(x + 1) + (x + 1) * mica.log(-y.reciprocal())
