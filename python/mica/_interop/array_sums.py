"""The array API standard's statistics and linear algebra: a part of mica._interop.array_namespace."""

import mica as _m
from mica import linalg as _linalg

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "linalg", "matrix_transpose", "max", "mean", "min", "prod",
    "std", "sum", "tensordot", "var", "vecdot",
]  # fmt: skip

_WIDE = (_m.float32, _m.float64, _m.complex64, _m.complex128)
_UNSIGNED = (_m.uint16, _m.uint32, _m.uint64)


def _axes(axis, ndim):
    return tuple(range(ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


# ---- statistics


def _sum_dtype(x, dtype):
    if dtype is not None or x.dtype in _WIDE:
        return dtype
    return _m.uint64 if x.dtype in _UNSIGNED else _m.int64


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    axes = _axes(axis, x.ndim)
    dtype = _sum_dtype(x, dtype)
    if not axes:
        return x.clone() if dtype is None else x.to(dtype)
    return _m.sum(x, axes, keepdims, dtype=dtype)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    x = x.to(_sum_dtype(x, dtype) or x.dtype)
    for a in sorted((a % x.ndim for a in _axes(axis, x.ndim)), reverse=True):
        x = _m.prod(x, a, keepdims)
    return x


def _over(function, x, axis, keepdims):
    axes = _axes(axis, x.ndim)
    return function(x, axes, keepdims) if axes else x.clone()


def max(x, /, *, axis=None, keepdims=False):
    return _over(_m.amax, x, axis, keepdims)


def min(x, /, *, axis=None, keepdims=False):
    return _over(_m.amin, x, axis, keepdims)


def mean(x, /, *, axis=None, keepdims=False):
    return _over(_m.mean, x, axis, keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    axes = _axes(axis, x.ndim)
    return _m.var(x, axes, correction=correction, keepdim=keepdims) if axes else _m.zeros_like(x)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def _cumulative(function, start):
    def cumulative(x, /, *, axis=None, dtype=None, include_initial=False):
        if axis is None:
            if x.ndim != 1:
                raise ValueError("axis must be given for arrays of several dimensions")
            axis = 0
        result = function(x, axis, dtype=_sum_dtype(x, dtype))
        if not include_initial:
            return result
        shape = list(x.shape)
        shape[axis] = 1
        return _m.cat([_m.full(shape, start, dtype=result.dtype, device=x.device), result], dim=axis)

    return cumulative


cumulative_sum, cumulative_prod = _cumulative(_m.cumsum, 0), _cumulative(_m.cumprod, 1)


def _truth(function, x, axis, keepdims):
    x = x.to(_m.bool)
    for a in sorted((a % x.ndim for a in _axes(axis, x.ndim)), reverse=True):
        x = function(x, a, keepdims)
    return x


def all(x, /, *, axis=None, keepdims=False):
    return _truth(_m.all, x, axis, keepdims)


def any(x, /, *, axis=None, keepdims=False):
    return _truth(_m.any, x, axis, keepdims)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    return _m.diff(x, n, axis, prepend, append)


# ---- linear algebra


def matrix_transpose(x, /):
    return x.mT


def tensordot(x1, x2, /, *, axes=2):
    return _m.tensordot(x1, x2, dims=axes)


def vecdot(x1, x2, /, *, axis=-1):
    x1, x2 = _m.broadcast_tensors(x1, x2)
    return (x1.conj() * x2 if x1.is_complex() else x1 * x2).sum(axis)


class linalg:
    """The standard's extension for linear algebra."""

    matmul, matrix_transpose = _m.matmul, staticmethod(matrix_transpose)
    tensordot, vecdot = staticmethod(tensordot), staticmethod(vecdot)
    cholesky, cross, det, diagonal = _linalg.cholesky, _linalg.cross, _linalg.det, _linalg.diagonal
    eigh, eigvalsh, inv, matrix_power = _linalg.eigh, _linalg.eigvalsh, _linalg.inv, _linalg.matrix_power
    qr, slogdet, svd, svdvals = _linalg.qr, _linalg.slogdet, _linalg.svd, _linalg.svdvals

    @staticmethod
    def solve(x1, x2, /):
        # x2 is a vector only if it has a single dimension.
        if x2.ndim > 1 and x2.ndim == x1.ndim - 1:
            return _linalg.solve(x1, x2.unsqueeze(0).expand(*x1.shape[:-2], *x2.shape[-2:]))
        return _linalg.solve(x1, x2)

    @staticmethod
    def pinv(x, /, *, rtol=None):
        return _linalg.pinv(x, rtol=rtol)

    @staticmethod
    def matrix_rank(x, /, *, rtol=None):
        return _linalg.matrix_rank(x, rtol=rtol)

    @staticmethod
    def matrix_norm(x, /, *, keepdims=False, ord="fro"):
        return _linalg.matrix_norm(x, ord, keepdim=keepdims)

    @staticmethod
    def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
        return _linalg.vector_norm(x, ord, axis, keepdims)

    @staticmethod
    def outer(x1, x2, /):
        return _m.outer(x1, x2)

    @staticmethod
    def trace(x, /, *, offset=0, dtype=None):
        return sum(x.diagonal(offset, -2, -1), axis=-1, dtype=dtype)
