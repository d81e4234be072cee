"""Beta distributions."""

import mica
from mica.distributions import constraints
from mica.distributions.dirichlet import Dirichlet
from mica.distributions.exp_family import ExponentialFamily
from mica.distributions.utils import all_numbers, broadcast_all

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """The beta distribution on [0, 1]: the first share of a Dirichlet distribution of two."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _expands = {"_dirichlet": 0}

    def __init__(self, concentration1, concentration0, validate_args=None):
        if all_numbers(concentration1, concentration0):
            both = mica.tensor([float(concentration1), float(concentration0)])
        else:
            both = mica.stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    @property
    def concentration1(self):
        """The concentration at 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self):
        """The concentration at 0."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self):
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self):
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape=()):
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._dirichlet.log_prob(mica.stack([value, 1.0 - value], -1))

    def entropy(self):
        return self._dirichlet.entropy()

    @property
    def _natural_params(self):
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x, y):
        return mica.lgamma(x) + mica.lgamma(y) - mica.lgamma(x + y)
