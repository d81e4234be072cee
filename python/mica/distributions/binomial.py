"""Binomial distributions."""

import mica
from mica.distributions import constraints
from mica.distributions._odds import BinaryOdds, check_one_of_two
from mica.distributions.distribution import Distribution
from mica.distributions.utils import broadcast_all

__all__ = ["Binomial"]


def _clamp_by_zero(x):
    """max(x, 0) with the derivative one half at zero."""
    return (x.clamp(min=0) + x - x.clamp(max=0)) / 2


class Binomial(BinaryOdds, Distribution):
    """The number of successes among `total_count` trials of one probability."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _expands = {"total_count": 0, "probs": 0, "logits": 0, "_param": 0}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        check_one_of_two(probs, logits)
        total_count, self._param = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = total_count.type_as(self._param)
        setattr(self, "logits" if probs is None else "probs", self._param)
        super().__init__(self._param.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self):
        return self.total_count * self.probs

    @property
    def mode(self):
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        with mica.no_grad():
            return mica.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        # k log p + (n - k) log(1 - p) is k logit - n max(logit, 0) - n log(1 + e^-|logit|), whatever the logit's sign.
        normalize = (
            n * _clamp_by_zero(self.logits) + n * mica.log1p(mica.exp(-mica.abs(self.logits))) - mica.lgamma(n + 1)
        )
        return value * self.logits - mica.lgamma(value + 1) - mica.lgamma(n - value + 1) - normalize

    def _common_count(self, method):
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{method}`.")
        return count

    def entropy(self):
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(mica.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand=True):
        count = self._common_count("enumerate_support")
        values = mica.arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values
