"""Multinomial distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions._odds import OfCategorical
from mica.distributions.binomial import Binomial
from mica.distributions.categorical import Categorical
from mica.distributions.distribution import Distribution
from mica.distributions.utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(OfCategorical, Distribution):
    """How often each category came up in `total_count` draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _expands = {"_categorical": 0}
    _carries = ("total_count", "_binomial")

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    @property
    def mean(self):
        return self.probs * self.total_count

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        sample_shape = mica.Size(sample_shape)
        draws = self._categorical.sample(mica.Size((self.total_count,)) + sample_shape).movedim(0, -1)
        counts = draws.new_zeros(self._extended_shape(sample_shape))
        counts.scatter_add_(-1, draws, mica.ones_like(draws))
        return counts.type_as(self.probs)

    def entropy(self):
        n = mica.tensor(self.total_count)
        support = self._binomial.enumerate_support(expand=False)[1:]
        weighted = mica.exp(self._binomial.log_prob(support)) * mica.lgamma(support + 1)
        return n * self._categorical.entropy() - mica.lgamma(n + 1) + weighted.sum([0, -1])

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)  # what cannot come up did not
        return mica.lgamma(value.sum(-1) + 1) - mica.lgamma(value + 1).sum(-1) + (logits * value).sum(-1)
