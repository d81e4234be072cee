"""Products and reductions."""

import math

import mica
from mica.export._core.arithmetic import isfinite
from mica.export._core.rules import decomposes, in_float32, number_like, sum_of_all

aten = mica.ops.aten


@decomposes("mv")
def _mv(x, vec):
    return aten.sum.dim_IntList(aten.mul.Tensor(x, vec), [1])


@decomposes("dot")
def _dot(x, other):
    return aten.sum.dim_IntList(aten.mul.Tensor(x, other), [0])


@decomposes("baddbmm")
def _baddbmm(x, a, b, *, beta=1, alpha=1):
    product = aten.bmm.default(a, b)
    product = product if alpha == 1 else aten.mul.Tensor(product, alpha)
    if beta == 0:
        return product
    return aten.add.Tensor(product, x if beta == 1 else aten.mul.Tensor(x, beta))


@decomposes("sum")
def _sum(x, *, dtype=None):
    return aten.sum.dim_IntList(x, []) if dtype is None else aten.sum.dim_IntList(x, [], dtype=dtype)


@decomposes("std.correction")
def _std(x, dim=None, *, correction=None, keepdim=False):
    return aten.sqrt.default(aten.var.correction(x, dim, correction=correction, keepdim=keepdim))


@decomposes("std_mean.correction")
def _std_mean(x, dim=None, *, correction=None, keepdim=False):
    var, mean = aten.var_mean.correction(x, dim, correction=correction, keepdim=keepdim)
    return aten.sqrt.default(var), mean


@decomposes("norm.Scalar")
def _norm(x, p=2):
    return aten.linalg_vector_norm.default(x, p)


@decomposes("norm.ScalarOpt_dim")
def _norm_of_dims(x, p, dim, keepdim=False):
    return aten.linalg_vector_norm.default(x, 2 if p is None else p, dim, keepdim)


@decomposes("all")
def _all(x):
    return aten.logical_not.default(aten.any.dims(aten.logical_not.default(x), None))


@decomposes("all.dim")
def _all_of_dim(x, dim, keepdim=False):
    return aten.logical_not.default(aten.any.dim(aten.logical_not.default(x), dim, keepdim))


@decomposes("aminmax")
def _aminmax(x, *, dim=None, keepdim=False):
    dims = [] if dim is None else [dim]
    return aten.amin.default(x, dims, keepdim), aten.amax.default(x, dims, keepdim)


@decomposes("count_nonzero")
def _count_nonzero(x, dim=None):
    return aten.sum.dim_IntList(aten.ne.Scalar(x, 0), [] if dim is None else [dim])


@decomposes("logsumexp")
def _logsumexp(x, dim, keepdim=False):
    dims = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    if not x.dtype.is_floating_point or x.dim() == 0:
        return NotImplemented
    top = aten.amax.default(x, dims, True)
    top = aten.where.self(aten.eq.Scalar(aten.abs.default(top), math.inf), number_like(0.0, top), top)
    total = aten.log.default(aten.sum.dim_IntList(aten.exp.default(aten.sub.Tensor(x, top)), dims, keepdim))
    return aten.add.Tensor(total, top if keepdim else aten.squeeze.dims(top, dims))


@decomposes("nansum")
def _nansum(x, dim=None, keepdim=False, *, dtype=None):
    if not x.dtype.is_floating_point or dtype is not None:
        return NotImplemented
    known = aten.where.self(aten.isnan.default(x), number_like(0, x), x)
    return aten.sum.dim_IntList(known, [] if dim is None else dim, keepdim)


@decomposes("cosine_similarity")
@in_float32
def _cosine_similarity(x, y, dim=1, eps=1e-8):
    if not x.dtype.is_floating_point or x.dtype != y.dtype:
        return NotImplemented
    if x.dim() != y.dim():
        x, y = mica.broadcast_tensors(x, y)
    made = []
    for each in (x, y):
        length = aten.linalg_vector_norm.default(each, 2, [dim], True)
        made.append(aten.div.Tensor(each, aten.clamp.Tensor(length, number_like(eps, each))))
    return aten.sum.dim_IntList(aten.mul.Tensor(*made), [dim])


@decomposes("isclose")
def _isclose(x, y, rtol=1e-05, atol=1e-08, equal_nan=False):
    if equal_nan or not x.dtype.is_floating_point:
        return NotImplemented
    room = aten.add.Scalar(aten.abs.default(aten.mul.Scalar(y, rtol)), atol)
    far = aten.abs.default(aten.sub.Tensor(x, y))
    is_near = aten.bitwise_and.Tensor(isfinite(far), aten.le.Tensor(far, room))
    return aten.bitwise_or.Tensor(aten.eq.Tensor(x, y), is_near)


@decomposes("logaddexp")
@in_float32
def _logaddexp(x, y):
    if not x.dtype.is_floating_point or x.dtype != y.dtype:
        return NotImplemented
    is_more = aten.ge.Tensor(x, y)
    top, low = aten.where.self(is_more, x, y), aten.where.self(is_more, y, x)
    is_same = aten.logical_and.default(aten.eq.Tensor(x, y), aten.logical_not.default(isfinite(x)))
    grown = aten.add.Tensor(top, aten.log1p.default(aten.exp.default(aten.sub.Tensor(low, top))))
    return aten.where.self(is_same, x, grown)


@decomposes("argsort")
def _argsort(x, dim=-1, descending=False):
    return aten.sort.default(x, dim, descending)[1]


@decomposes("trace")
def _trace(x):
    return sum_of_all(aten.diagonal.default(x))
