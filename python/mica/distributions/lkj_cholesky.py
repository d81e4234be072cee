"""Distributions of correlation matrices, by their Cholesky factors."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.beta import Beta
from mica.distributions.distribution import Distribution
from mica.distributions.utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices with density proportional to |C|^(concentration - 1).

    Lewandowski, Kurowicka and Joe, 2009: the onion method, by rows.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _expands = {"concentration": 0, "_beta": 1}
    _carries = ("dim",)

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # The squared length of each row left of the diagonal is a beta number.
        like = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        marginal = self.concentration + 0.5 * (dim - 2)
        offset = mica.cat([mica.zeros(1, **like), mica.arange(dim - 1, **like)])
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        super().__init__(self.concentration.size(), mica.Size((dim, dim)), validate_args)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        squared = self._beta.sample(sample_shape).unsqueeze(-1)
        shape = self._extended_shape(sample_shape)
        normal = mica.randn(shape, dtype=squared.dtype, device=squared.device).tril(-1)
        direction = normal / normal.norm(dim=-1, keepdim=True)
        direction[..., 0, :].fill_(0.0)  # nothing is left of the first diagonal element
        factor = mica.sqrt(squared) * direction
        rest = mica.clamp(1 - mica.sum(factor**2, dim=-1), min=mica.finfo(factor.dtype).tiny)
        return factor + mica.diag_embed(rest.sqrt())

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        # The determinant's power and the Jacobian of the factorisation give each diagonal element one power.
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        row = mica.arange(2, self.dim + 1, device=self.concentration.device)
        power = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - row
        below = self.dim - 1
        alpha = self.concentration + 0.5 * below
        normalizer = 0.5 * below * math.log(math.pi) + mica.mvlgamma(alpha - 0.5, below) - mica.lgamma(alpha) * below
        return mica.sum(power * diagonal.log(), dim=-1) - normalizer
