"""Categorical distributions whose samples are one-hot vectors."""

import mica
from mica.distributions import constraints
from mica.distributions._odds import OfCategorical
from mica.distributions.categorical import Categorical
from mica.distributions.distribution import Distribution
from mica.nn.functional import one_hot

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(OfCategorical, Distribution):
    """A category as a one-hot vector."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True
    _expands = {"_categorical": 0}

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @property
    def mean(self):
        return self.probs

    @property
    def mode(self):
        return one_hot(self.probs.argmax(dim=-1), num_classes=self.probs.shape[-1]).to(self.probs)

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        probs = self.probs
        indices = self._categorical.sample(mica.Size(sample_shape))
        return one_hot(indices, self._categorical._num_events).to(probs)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self.event_shape[0]
        values = mica.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n,) + self.batch_shape + (n,)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot samples with the gradient of the probabilities: Bengio et al., 2013."""

    has_rsample = True

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        samples = self.sample(sample_shape)
        probs = self.probs
        return samples + (probs - probs.detach())
