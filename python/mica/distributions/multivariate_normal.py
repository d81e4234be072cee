"""Multivariate normal distributions."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.distribution import Distribution
from mica.distributions.utils import _standard_normal, kept, lazy_property

__all__ = ["MultivariateNormal"]


def _batch_mv(bmat, bvec):
    """Products of matrices and vectors, batches broadcast."""
    return mica.matmul(bmat, bvec.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(bL, bx):
    """The squared lengths of L^-1 x. The batch of L, which need not be x's, is not expanded: its factors are reused."""
    n, batch = bx.size(-1), bx.shape[:-1]
    if bL.shape[:-2] == batch:  # one vector to each factor
        return mica.linalg.solve_triangular(bL, bx.unsqueeze(-1), upper=False).squeeze(-1).pow(2).sum(-1)
    outer, inner = len(batch) - (bL.dim() - 2), bL.dim() - 2
    # x of shape (..., repeats, sizes of L, n), the repeats of every dimension before all of L's.
    split = list(bx.shape[:outer])
    for mine, theirs in zip(bL.shape[:-2], batch[outer:], strict=True):
        split += [theirs // mine, mine]
    repeats = list(range(outer, outer + 2 * inner, 2))
    own = list(range(outer + 1, outer + 2 * inner, 2))
    order = [*range(outer), *repeats, *own]
    x = bx.reshape([*split, n]).permute([*order, outer + 2 * inner])
    factors = bL.reshape(-1, n, n)
    columns = x.reshape(-1, factors.size(0), n).permute(1, 2, 0)
    squared = mica.linalg.solve_triangular(factors, columns, upper=False).pow(2).sum(-2).t()
    back = sorted(range(len(order)), key=order.__getitem__)
    return squared.reshape(x.shape[:-1]).permute(back).reshape(batch)


def _precision_to_scale_tril(P):
    """The Cholesky factor of the inverse: turned end for end, the factor of P is the inverse of its transpose."""
    turned = mica.linalg.cholesky(mica.flip(P, (-2, -1)))
    inverse = mica.transpose(mica.flip(turned, (-2, -1)), -2, -1)
    return mica.linalg.solve_triangular(inverse, mica.eye(P.shape[-1], dtype=P.dtype, device=P.device), upper=False)


def check_one_matrix(error, covariance_matrix, precision_matrix, scale_tril):
    """The name and the value of the one matrix that was given."""
    given = {
        "covariance_matrix": covariance_matrix,
        "precision_matrix": precision_matrix,
        "scale_tril": scale_tril,
    }
    given = [(name, value) for name, value in given.items() if value is not None]
    if len(given) != 1:
        raise error("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    return given[0]


def scale_tril_of(name, matrix):
    """The Cholesky factor of the covariance, whichever matrix was given."""
    if name == "scale_tril":
        return matrix
    return mica.linalg.cholesky(matrix) if name == "covariance_matrix" else _precision_to_scale_tril(matrix)


def log_diagonal(factor):
    """The sum of the logarithms of the diagonals."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Distribution):
    """Normal vectors with a mean `loc` and a covariance, given as such, by its inverse or by its Cholesky factor."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _expands = {"loc": 1, "covariance_matrix": 2, "scale_tril": 2, "precision_matrix": 2}
    _carries = ("_unbroadcasted_scale_tril",)

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = check_one_matrix(ValueError, covariance_matrix, precision_matrix, scale_tril)
        if matrix.dim() < 2:
            name = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = mica.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand(batch_shape + (-1, -1)))
        self.loc = loc.expand(batch_shape + (-1,))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = scale_tril_of(name, matrix)

    def _widened(self, matrix):
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self):
        """The Cholesky factor of the covariance."""
        return self._widened(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        """The covariance."""
        return self._widened(mica.matmul(self._unbroadcasted_scale_tril, self._unbroadcasted_scale_tril.mT))

    @lazy_property
    def precision_matrix(self):
        """The inverse of the covariance."""
        return self._widened(mica.cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        noise = _standard_normal(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        squared = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        half_log_det = kept(self, "_kept_log_det", self._unbroadcasted_scale_tril, log_diagonal)
        return -0.5 * (constant + squared) - half_log_det

    def entropy(self):
        half = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (half + log_diagonal(self._unbroadcasted_scale_tril)).expand(self._batch_shape)
