"""Multivariate normal distributions with a covariance of low rank plus a diagonal."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.distribution import Distribution
from mica.distributions.multivariate_normal import _batch_mahalanobis, _batch_mv, log_diagonal
from mica.distributions.utils import _standard_normal, lazy_property

__all__ = ["LowRankMultivariateNormal"]


def _plus_identity(matrix):
    return matrix + mica.eye(matrix.size(-1), dtype=matrix.dtype, device=matrix.device)


def _batch_capacitance_tril(W, D):
    """The Cholesky factor of I + W' D^-1 W, the small matrix that all the rest is computed with."""
    return mica.linalg.cholesky(_plus_identity(mica.matmul(W.mT / D.unsqueeze(-2), W)))


def _batch_lowrank_logdet(W, D, capacitance_tril):
    """log |W W' + D| by the matrix determinant lemma."""
    return 2 * log_diagonal(capacitance_tril) + D.log().sum(-1)


def _batch_lowrank_mahalanobis(W, D, x, capacitance_tril):
    """x' (W W' + D)^-1 x by the Woodbury identity."""
    projected = _batch_mv(W.mT / D.unsqueeze(-2), x)
    return (x.pow(2) / D).sum(-1) - _batch_mahalanobis(capacitance_tril, projected)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance cov_factor @ cov_factor.T + diag(cov_diag)."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _expands = {"loc": 1, "cov_diag": 1, "cov_factor": 2}
    _carries = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            wide_loc, self.cov_factor, wide_diag = mica.broadcast_tensors(
                loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1)
            )
        except RuntimeError as e:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from e
        self.loc = wide_loc[..., 0]
        self.cov_diag = wide_diag[..., 0]
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    def _widened(self, matrix):
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def variance(self):
        variance = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return variance.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self):
        """The Cholesky factor of the covariance: D^(1/2) times that of I + D^(-1/2) W W' D^(-1/2), well conditioned."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        return self._widened(root * mica.linalg.cholesky(_plus_identity(mica.matmul(scaled, scaled.mT))))

    @lazy_property
    def covariance_matrix(self):
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        return self._widened(mica.matmul(factor, factor.mT) + mica.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self):
        """The inverse of the covariance, by the Woodbury identity."""
        diag = self._unbroadcasted_cov_diag
        scaled = self._unbroadcasted_cov_factor.mT / diag.unsqueeze(-2)
        solved = mica.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._widened(mica.diag_embed(diag.reciprocal()) - solved.mT @ solved)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        like = {"dtype": self.loc.dtype, "device": self.loc.device}
        low = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], **like)
        own = _standard_normal(shape, **like)
        return self.loc + _batch_mv(self._unbroadcasted_cov_factor, low) + self._unbroadcasted_cov_diag.sqrt() * own

    def _factors(self):
        return self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        squared = _batch_lowrank_mahalanobis(*self._factors(), value - self.loc, self._capacitance_tril)
        log_det = _batch_lowrank_logdet(*self._factors(), self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det + squared)

    def entropy(self):
        log_det = _batch_lowrank_logdet(*self._factors(), self._capacitance_tril)
        return (0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + log_det)).expand(self._batch_shape)
