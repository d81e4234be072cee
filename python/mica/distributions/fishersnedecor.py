"""Fisher-Snedecor distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.distribution import Distribution
from mica.distributions.gamma import Gamma
from mica.distributions.utils import all_numbers, broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The F-distribution: the ratio of two chi-squared numbers, each by its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _expands = {"df1": 0, "df2": 0, "_gamma1": 0, "_gamma2": 0}

    def __init__(self, df1, df2, validate_args=None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        batch_shape = mica.Size() if all_numbers(df1, df2) else self.df1.size()
        super().__init__(batch_shape, validate_args=validate_args)

    @property
    def mean(self):
        df2 = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self):
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self):
        df2 = self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * df2.pow(2) * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        over = self._gamma1.rsample(sample_shape).view(shape)
        under = self._gamma2.rsample(sample_shape).view(shape)
        tiny = mica.finfo(under.dtype).tiny
        return (over / under.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        half1, half2, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        both = half1 + half2
        normalizer = both.lgamma() - half1.lgamma() - half2.lgamma()
        power = half1 * ratio.log() + (half1 - 1) * mica.log(value)
        return normalizer + power - both * mica.log1p(ratio * value)
