"""Categorical distributions relaxed to points of the simplex, with a gradient."""

import mica
from mica.distributions import constraints
from mica.distributions._odds import OfCategorical
from mica.distributions.categorical import Categorical
from mica.distributions.distribution import Distribution
from mica.distributions.relaxed_bernoulli import _Relaxed
from mica.distributions.transforms import ExpTransform
from mica.distributions.utils import broadcast_all, clamp_probs

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(OfCategorical, Distribution):
    """The logarithms of relaxed one-hot samples: Gumbel noise on the logits, by a temperature."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector  # in truth a surface in it
    has_rsample = True
    _expands = {"_categorical": 0}
    _carries = ("temperature",)

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(mica.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits - (-(u.log())).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        count = self._categorical._num_events
        logits, value = broadcast_all(self.logits, value)
        log_scale = mica.full_like(self.temperature, float(count)).lgamma() - self.temperature.log().mul(-(count - 1))
        score = logits - value.mul(self.temperature)
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + log_scale


class RelaxedOneHotCategorical(_Relaxed):
    """A relaxed one-hot sample: Maddison et al. and Jang et al., 2017."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    _own = ()

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base_dist = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base_dist, ExpTransform(), validate_args=validate_args)
