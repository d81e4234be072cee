"""Wishart distributions."""

import math
import warnings

import mica
from mica.distributions import constraints
from mica.distributions.chi2 import Chi2
from mica.distributions.exp_family import ExponentialFamily
from mica.distributions.multivariate_normal import check_one_matrix, log_diagonal, scale_tril_of
from mica.distributions.utils import _Number, lazy_property

__all__ = ["Wishart"]

_LOG_2 = math.log(2)


def _mvdigamma(x, p):
    """The derivative of mvlgamma."""
    if not x.gt((p - 1) / 2).all():
        raise AssertionError("Wrong domain for multivariate digamma function.")
    return mica.digamma(x.unsqueeze(-1) - mica.arange(p, dtype=x.dtype, device=x.device) / 2).sum(-1)


class Wishart(ExponentialFamily):
    """Positive definite matrices: sums of `df` outer products of normal vectors."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _expands = {
        "df": 0,
        "covariance_matrix": 2,
        "scale_tril": 2,
        "precision_matrix": 2,
        "_unbroadcasted_scale_tril": 2,
        "_dist_chi2": 1,
    }

    @property
    def arg_constraints(self):
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        name, matrix = check_one_matrix(AssertionError, covariance_matrix, precision_matrix, scale_tril)
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        if isinstance(df, _Number):
            batch_shape = mica.Size(matrix.shape[:-2])
            self.df = mica.tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch_shape = mica.broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch_shape)
        event_shape = matrix.shape[-2:]
        side = event_shape[-1]
        if self.df.le(side - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {side - 1}.")
        setattr(self, name, matrix.expand(batch_shape + (-1, -1)))
        if self.df.lt(side).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_scale_tril = factor = scale_tril_of(name, matrix)
        steps = mica.arange(side, dtype=factor.dtype, device=factor.device)
        self._dist_chi2 = Chi2(df=self.df.unsqueeze(-1) - steps.expand(batch_shape + (-1,)))

    @property
    def _batch_dims(self):
        return [-(i + 1) for i in range(len(self._batch_shape))]

    def _widened(self, matrix):
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self):
        """The Cholesky factor of the covariance."""
        return self._widened(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        """The covariance of the normal vectors."""
        factor = self._unbroadcasted_scale_tril
        return self._widened(factor @ factor.transpose(-2, -1))

    @lazy_property
    def precision_matrix(self):
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        identity = mica.eye(self._event_shape[-1], device=factor.device, dtype=factor.dtype)
        return self._widened(mica.cholesky_solve(identity, factor))

    def _per_matrix(self, value):
        return value.view(self._batch_shape + (1, 1))

    @property
    def mean(self):
        return self._per_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self):
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        return self._per_matrix(factor.masked_fill(factor <= 0, math.nan)) * self.covariance_matrix

    @property
    def variance(self):
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        return self._per_matrix(self.df) * (covariance.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape=mica.Size()):  # noqa: B008
        """By Bartlett's decomposition: the factor times a triangle of normal numbers with chi roots on the diagonal."""
        p = self._event_shape[-1]
        roots = self._dist_chi2.rsample(sample_shape).sqrt()
        noise = roots.clamp(min=mica.finfo(roots.dtype).eps).diag_embed(dim1=-2, dim2=-1)
        i, j = mica.tril_indices(p, p, offset=-1)
        shape = mica.Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,)
        noise[..., i, j] = mica.randn(shape, dtype=noise.dtype, device=noise.device)
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.transpose(-2, -1)

    def _any_of_batch(self, flags):
        return flags.amax(self._batch_dims) if self._batch_shape else flags

    def rsample(self, sample_shape=mica.Size(), max_try_correction=None):  # noqa: B008
        """Samples; those that fail the check are drawn again, `max_try_correction` times at most.

        As in torch, the first check marks the samples that pass instead of those that fail. So the random numbers are torch's.
        """
        tries = 10 if max_try_correction is None else max_try_correction
        sample_shape = mica.Size(sample_shape)
        sample = self._bartlett_sampling(sample_shape)
        again = self._any_of_batch(self.support.check(sample))
        if again.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
            for _ in range(tries):
                fresh = self._bartlett_sampling(again[again].shape)
                sample[again] = fresh
                again[again.clone()] = self._any_of_batch(~self.support.check(fresh))
                if not again.any():
                    break
        return sample

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        nu, p, factor = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        trace = mica.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return (
            -nu * (p * _LOG_2 / 2 + log_diagonal(factor))
            - mica.mvlgamma(nu / 2, p=p)
            + (nu - p - 1) / 2 * mica.linalg.slogdet(value).logabsdet
            - trace / 2
        )

    def entropy(self):
        nu, p = self.df, self._event_shape[-1]
        return (
            (p + 1) * (p * _LOG_2 / 2 + log_diagonal(self._unbroadcasted_scale_tril))
            + mica.mvlgamma(nu / 2, p=p)
            - (nu - p - 1) / 2 * _mvdigamma(nu / 2, p=p)
            + nu * p / 2
        )

    @property
    def _natural_params(self):
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x, y):
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        return half * (-mica.linalg.slogdet(-2 * x).logabsdet + _LOG_2 * p) + mica.mvlgamma(half, p=p)
