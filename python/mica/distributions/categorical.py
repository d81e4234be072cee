"""Categorical distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions._odds import check_one_of_two
from mica.distributions.distribution import Distribution
from mica.distributions.utils import lazy_property, logits_to_probs, probs_to_logits

__all__ = ["Categorical"]


class Categorical(Distribution):
    """One of the categories 0 ... n - 1, whose weights lie along the last dimension of `probs` or `logits`."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _expands = {"probs": 1, "logits": 1, "_param": 1}
    _carries = ("_num_events",)

    def __init__(self, probs=None, logits=None, validate_args=None):
        check_one_of_two(probs, logits)
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is None:
            self.logits = self._param = logits - logits.logsumexp(dim=-1, keepdim=True)
        else:
            self.probs = self._param = probs / probs.sum(-1, keepdim=True)
        self._num_events = self._param.size()[-1]
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    def _new(self, *args, **kwargs):
        return self._param.new(*args, **kwargs)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self):
        """The normalised log probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self):
        """The normalised probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self):
        """The shape of the parameter."""
        return self._param.size()

    @property
    def mean(self):
        return self._filled(math.nan, self.probs)

    @property
    def mode(self):
        return self.probs.argmax(dim=-1)

    @property
    def variance(self):
        return self._filled(math.nan, self.probs)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        if not isinstance(sample_shape, mica.Size):
            sample_shape = mica.Size(sample_shape)
        weights = self.probs.reshape(-1, self._num_events)
        return mica.multinomial(weights, sample_shape.numel(), True).T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value = value.long().unsqueeze(-1)
        logits = self.logits
        if value.shape[:-1] != logits.shape[:-1]:
            value, logits = mica.broadcast_tensors(value, logits)
            value = value[..., :1]
        return logits.gather(-1, value).squeeze(-1)

    def entropy(self):
        logits = mica.clamp(self.logits, min=mica.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        values = mica.arange(self._num_events, dtype=mica.long, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values
