"""Logistic-normal distributions."""

from mica.distributions import constraints
from mica.distributions.normal import Normal
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Points of the simplex made of normal vectors by breaking a stick."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True
    _own = ()

    def __init__(self, loc, scale, validate_args=None):
        base_dist = Normal(loc, scale, validate_args=validate_args)
        if not base_dist.batch_shape:
            base_dist = base_dist.expand([1])
        super().__init__(base_dist, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self):
        """The mean of the normal vectors."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self):
        """The standard deviation of the normal vectors."""
        return self.base_dist.base_dist.scale
