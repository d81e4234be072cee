"""Geometric distributions."""

import mica
from mica.distributions import constraints
from mica.distributions._odds import BinaryOdds, check_one_of_two
from mica.distributions.distribution import Distribution
from mica.distributions.utils import all_numbers, broadcast_all
from mica.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Geometric"]


class Geometric(BinaryOdds, Distribution):
    """The number of failures before the first success, of probability `probs`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _expands = {"probs": 0, "logits": 0, "_param": 0}

    def __init__(self, probs=None, logits=None, validate_args=None):
        check_one_of_two(probs, logits)
        given = logits if probs is None else probs
        (self._param,) = broadcast_all(given)
        setattr(self, "logits" if probs is None else "probs", self._param)
        super().__init__(mica.Size() if all_numbers(given) else self._param.size(), validate_args=validate_args)
        if self._validate_args and probs is not None:
            valid = self._param > 0
            if not valid.all():
                raise ValueError(
                    f"Expected parameter probs ({type(self._param).__name__} of shape {tuple(self._param.shape)}) of "
                    f"distribution {self!r} to be positive but found invalid values:\n{self._param.data[~valid]}"
                )

    @property
    def mean(self):
        return 1.0 / self.probs - 1.0

    @property
    def mode(self):
        return mica.zeros_like(self.probs)

    @property
    def variance(self):
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        with mica.no_grad():
            u = self.probs.new_empty(self._extended_shape(sample_shape))
            u.uniform_(mica.finfo(u.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
