"""Negative binomial distributions."""

import mica
from mica.distributions import constraints
from mica.distributions._odds import BinaryOdds, check_one_of_two
from mica.distributions.distribution import Distribution
from mica.distributions.gamma import Gamma
from mica.distributions.utils import broadcast_all, lazy_property
from mica.nn.functional import logsigmoid

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryOdds, Distribution):
    """The number of successes, each of probability `probs`, before `total_count` failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _expands = {"total_count": 0, "probs": 0, "logits": 0, "_param": 0}

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        check_one_of_two(probs, logits)
        total_count, self._param = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = total_count.type_as(self._param)
        setattr(self, "logits" if probs is None else "probs", self._param)
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def mean(self):
        return self.total_count * mica.exp(self.logits)

    @property
    def mode(self):
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self):
        return self.mean / mica.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self):
        # Not validated: the count may be zero.
        return Gamma(concentration=self.total_count, rate=mica.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        with mica.no_grad():
            return mica.poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        count = self.total_count
        unnormalized = count * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        normalization = -mica.lgamma(count + value) + mica.lgamma(1.0 + value) + mica.lgamma(count)
        # No failures to wait for: zero successes are certain, though lgamma(0) is infinite.
        return unnormalized - normalization.masked_fill(count + value == 0.0, 0.0)
