"""Dirichlet distributions."""

import mica
from mica import _C, lgamma
from mica.distributions import constraints
from mica.distributions.exp_family import ExponentialFamily
from mica.distributions.utils import kept
from mica.nn.functional import one_hot

__all__ = ["Dirichlet"]


def _Dirichlet_backward(x, concentration, grad_output):
    total = concentration.sum(-1, True).expand_as(concentration)
    grad = _C._dirichlet_grad(x, concentration, total)
    return grad * (grad_output - (x * grad_output).sum(-1, True))


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution over points of the simplex; the concentrations lie along the last dimension."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _expands = {"concentration": 1}

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape=()):
        return _C._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return mica.xlogy(self.concentration - 1.0, value).sum(-1) + self._log_constant()

    def _log_constant(self):
        return kept(self, "_kept_constant", self.concentration, lambda c: lgamma(c.sum(-1)) - lgamma(c).sum(-1))

    @property
    def mean(self):
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self):
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        corners = (self.concentration < 1).all(dim=-1)  # all the mass is at the corners: the first of them
        mode[corners] = one_hot(mode[corners].argmax(dim=-1), above.shape[-1]).to(mode)
        return mode

    @property
    def variance(self):
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self):
        count, total = self.concentration.size(-1), self.concentration.sum(-1)
        return (
            mica.lgamma(self.concentration).sum(-1)
            - mica.lgamma(total)
            - (count - total) * mica.digamma(total)
            - ((self.concentration - 1.0) * mica.digamma(self.concentration)).sum(-1)
        )

    @property
    def _natural_params(self):
        return (self.concentration,)

    def _log_normalizer(self, x):
        return x.lgamma().sum(-1) - mica.lgamma(x.sum(-1))
