"""The distribution of absolute values of numbers whose distribution is symmetric about zero."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.transforms import AbsTransform


class Half(TransformedDistribution):
    """The distribution of |x|; a subclass gives `_whole(scale)`, the distribution of x."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _own = ()

    def __init__(self, scale, validate_args=None):
        super().__init__(self._whole(scale), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self):
        """The scale of the whole distribution."""
        return self.base_dist.scale

    @property
    def mode(self):
        return mica.zeros_like(self.scale)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value = mica.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return mica.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob):
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)
