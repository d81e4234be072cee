"""Continuous Bernoulli distributions: Loaiza-Ganem and Cunningham, 2019."""

import math

import mica
from mica.distributions import constraints
from mica.distributions._odds import BinaryOdds, check_one_of_two
from mica.distributions.exp_family import ExponentialFamily
from mica.distributions.utils import (
    all_numbers,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
)
from mica.nn.functional import binary_cross_entropy_with_logits

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(BinaryOdds, ExponentialFamily):
    """Numbers of [0, 1] with density proportional to p^x (1 - p)^(1 - x).

    Where `probs` lies between the two `lims` the formulas divide zero by zero: there they are Taylor's.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _expands = {"probs": 0, "logits": 0, "_param": 0}
    _carries = ("_lims",)

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        check_one_of_two(probs, logits)
        given = logits if probs is None else probs
        (self._param,) = broadcast_all(given)
        if probs is not None:
            # Checked here: the clamped ones would always pass.
            if validate_args is not None and not self.arg_constraints["probs"].check(self._param).all():
                raise ValueError("The parameter probs has invalid values")
            self._param = clamp_probs(self._param)
        setattr(self, "logits" if probs is None else "probs", self._param)
        self._lims = lims
        batch_shape = mica.Size() if all_numbers(given) else self._param.size()
        super().__init__(batch_shape, validate_args=validate_args)

    @lazy_property
    def probs(self):
        """The parameter p."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside_unstable_region(self):
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self):
        return mica.where(self._outside_unstable_region(), self.probs, self._lims[0] * mica.ones_like(self.probs))

    def _cont_bern_log_norm(self):
        cut = self._cut_probs()
        below = mica.where(cut <= 0.5, cut, mica.zeros_like(cut))
        above = mica.where(cut >= 0.5, cut, mica.ones_like(cut))
        norm = mica.log(mica.abs(mica.log1p(-cut) - mica.log(cut))) - mica.where(
            cut <= 0.5, mica.log1p(-2.0 * below), mica.log(2.0 * above - 1.0)
        )
        x = mica.pow(self.probs - 0.5, 2)
        return mica.where(self._outside_unstable_region(), norm, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self):
        cut = self._cut_probs()
        exact = cut / (2.0 * cut - 1.0) + 1.0 / (mica.log1p(-cut) - mica.log(cut))
        x = self.probs - 0.5
        return mica.where(self._outside_unstable_region(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * mica.pow(x, 2)) * x)

    @property
    def stddev(self):
        return mica.sqrt(self.variance)

    @property
    def variance(self):
        cut = self._cut_probs()
        exact = cut * (cut - 1.0) / mica.pow(1.0 - 2.0 * cut, 2)
        exact = exact + 1.0 / mica.pow(mica.log1p(-cut) - mica.log(cut), 2)
        x = mica.pow(self.probs - 0.5, 2)
        return mica.where(self._outside_unstable_region(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        with mica.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        return self.icdf(mica.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none") + self._cont_bern_log_norm()

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        cut = self._cut_probs()
        exact = mica.pow(cut, value) * mica.pow(1.0 - cut, 1.0 - value) + cut - 1.0
        inside = mica.where(self._outside_unstable_region(), exact / (2.0 * cut - 1.0), value)
        return mica.where(value <= 0.0, mica.zeros_like(value), mica.where(value >= 1.0, mica.ones_like(value), inside))

    def icdf(self, value):
        cut = self._cut_probs()
        exact = mica.log1p(-cut + value * (2.0 * cut - 1.0)) - mica.log1p(-cut)
        return mica.where(self._outside_unstable_region(), exact / (mica.log(cut) - mica.log1p(-cut)), value)

    def entropy(self):
        zero, one = mica.log1p(-self.probs), mica.log(self.probs)
        return self.mean * (zero - one) - self._cont_bern_log_norm() - zero

    @property
    def _natural_params(self):
        return (self.logits,)

    def _log_normalizer(self, x):
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        outside = (x <= low) | (x > high)
        cut = mica.where(outside, x, low * mica.ones_like(x))
        exact = mica.log(mica.abs(mica.special.expm1(cut))) - mica.log(mica.abs(cut))
        return mica.where(outside, exact, 0.5 * x + mica.pow(x, 2) / 24.0 - mica.pow(x, 4) / 2880.0)
