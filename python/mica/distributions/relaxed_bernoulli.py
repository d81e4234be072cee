"""Bernoulli distributions relaxed to numbers of (0, 1), with a gradient."""

import mica
from mica.distributions import constraints
from mica.distributions._odds import BinaryOdds, check_one_of_two
from mica.distributions.distribution import Distribution
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.transforms import SigmoidTransform
from mica.distributions.utils import all_numbers, broadcast_all, clamp_probs

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(BinaryOdds, Distribution):
    """The logits of relaxed Bernoulli samples: logistic noise on the log odds, by a temperature."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    _expands = {"probs": 0, "logits": 0, "_param": 0}
    _carries = ("temperature",)

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        check_one_of_two(probs, logits)
        given = logits if probs is None else probs
        (self._param,) = broadcast_all(given)
        setattr(self, "logits" if probs is None else "probs", self._param)
        super().__init__(mica.Size() if all_numbers(given) else self._param.size(), validate_args=validate_args)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(mica.rand(shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        diff = logits - value.mul(self.temperature)
        return self.temperature.log() + diff - 2 * diff.exp().log1p()


class _Relaxed(TransformedDistribution):
    """Gives a relaxed distribution the parameters of the distribution that it is made of."""

    has_rsample = True

    @property
    def temperature(self):
        """The temperature: the lower, the nearer samples are to the corners."""
        return self.base_dist.temperature

    @property
    def logits(self):
        """The logits of the base."""
        return self.base_dist.logits

    @property
    def probs(self):
        """The probabilities of the base."""
        return self.base_dist.probs


class RelaxedBernoulli(_Relaxed):
    """A relaxed Bernoulli sample: Maddison et al. and Jang et al., 2017."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _own = ()

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base_dist = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base_dist, SigmoidTransform(), validate_args=validate_args)
