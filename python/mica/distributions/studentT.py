"""Student's t-distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.chi2 import Chi2
from mica.distributions.distribution import Distribution
from mica.distributions.utils import _standard_normal, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t-distribution of `df` degrees of freedom, moved and scaled."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _expands = {"df": 0, "loc": 0, "scale": 0, "_chi2": 0}

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.size(), validate_args=validate_args)

    @property
    def mean(self):
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        return finite.masked_fill(self.df <= 2, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        # A normal number over the root of a chi-squared one by its degrees of freedom.
        shape = self._extended_shape(sample_shape)
        normal = _standard_normal(shape, dtype=self.df.dtype, device=self.df.device)
        return self.loc + self.scale * (normal * mica.rsqrt(self._chi2.rsample(sample_shape) / self.df))

    def _log_beta(self):
        return mica.lgamma(0.5 * self.df) - mica.lgamma(0.5 * (self.df + 1.0))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        normalizer = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + self._log_beta()
        return -0.5 * (self.df + 1.0) * mica.log1p(y**2.0 / self.df) - normalizer

    def entropy(self):
        slope = mica.digamma(0.5 * (self.df + 1)) - mica.digamma(0.5 * self.df)
        return (
            self.scale.log() + 0.5 * (self.df + 1) * slope + 0.5 * self.df.log() + (self._log_beta() + math.lgamma(0.5))
        )
