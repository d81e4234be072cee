"""Arithmetic, element by element."""

import math

import mica
from mica.export._core.rules import decomposes, in_float32, number_like
from mica.utils._python_dispatch import _disable_current_modes

aten = mica.ops.aten


@decomposes("rsub.Scalar", "rsub.Tensor")
def _rsub(x, other, alpha=1):
    return aten.sub.Tensor(other, x if alpha == 1 else aten.mul.Tensor(x, alpha))


@decomposes("addcmul")
def _addcmul(x, a, b, *, value=1):
    product = aten.mul.Tensor(a, b)
    return aten.add.Tensor(x, product if value == 1 else aten.mul.Tensor(product, value))


@decomposes("addcdiv")
def _addcdiv(x, a, b, *, value=1):
    return aten.add.Tensor(x, aten.div.Tensor(a if value == 1 else aten.mul.Tensor(a, value), b))


@decomposes("lerp.Scalar", "lerp.Tensor")
@in_float32
def _lerp(x, end, weight):
    if not isinstance(weight, mica.Tensor):
        weight = aten.full.default([], weight, dtype=x.dtype, device=x.device)
    is_late = aten.ge.Scalar(aten.abs.default(weight), 0.5)
    factor = aten.where.self(is_late, aten.sub.Tensor(weight, 1), weight)
    base = aten.where.self(is_late, end, x)
    return aten.add.Tensor(aten.mul.Tensor(factor, aten.sub.Tensor(end, x)), base)


@decomposes("floor_divide", "floor_divide.Scalar")
def _floor_divide(x, other):
    return aten.div.Tensor_mode(x, other, rounding_mode="floor")


@decomposes("frac")
def _frac(x):
    return aten.sub.Tensor(x, aten.trunc.default(x))


@decomposes("deg2rad")
def _deg2rad(x):
    return aten.mul.Tensor(x, math.pi / 180)


@decomposes("rad2deg")
def _rad2deg(x):
    return aten.mul.Tensor(x, 180 / math.pi)


@decomposes("sinc")
@in_float32
def _sinc(x):
    if not x.dtype.is_floating_point:
        return NotImplemented
    angle = aten.mul.Tensor(x, math.pi)
    ratio = aten.div.Tensor(aten.sin.default(angle), angle)
    return aten.where.self(aten.eq.Scalar(angle, 0), number_like(1, ratio), ratio)


@decomposes("xlogy.Tensor")
@in_float32
def _xlogy(x, y):
    if not x.dtype.is_floating_point or x.dtype != y.dtype:
        return NotImplemented
    product = aten.mul.Tensor(x, aten.log.default(y))
    made = aten.where.self(aten.eq.Scalar(x, 0), number_like(0, product), product)
    return aten.where.self(aten.isnan.default(y), number_like(math.nan, made), made)


@decomposes("logit")
@in_float32
def _logit(x, eps=None):
    if not x.dtype.is_floating_point:
        return NotImplemented
    if eps is not None:
        x = aten.clamp.default(x, eps, 1 - eps)
    return aten.log.default(aten.div.Tensor(x, aten.sub.Tensor(1, x)))


@decomposes("isfinite")
def isfinite(x):
    if not x.dtype.is_floating_point:
        return NotImplemented
    return aten.mul.Tensor(aten.eq.Tensor(x, x), aten.ne.Scalar(aten.abs.default(x), math.inf))


@decomposes("nan_to_num")
def _nan_to_num(x, nan=None, posinf=None, neginf=None):
    if not x.dtype.is_floating_point:
        return NotImplemented
    ends = mica.finfo(x.dtype)
    x = aten.where.self(aten.isnan.default(x), number_like(0.0 if nan is None else nan, x), x)
    x = aten.where.self(aten.eq.Scalar(x, -math.inf), number_like(ends.min if neginf is None else neginf, x), x)
    return aten.where.self(aten.eq.Scalar(x, math.inf), number_like(ends.max if posinf is None else posinf, x), x)


@decomposes("clamp_min")
def _clamp_min(x, min):
    return aten.clamp.default(x, min)


@decomposes("clamp_max")
def _clamp_max(x, max):
    return aten.clamp.default(x, None, max)


@decomposes("masked_fill.Scalar")
def _masked_fill(x, mask, value):
    return aten.where.self(mask, number_like(value, x), x)


@decomposes("where.ScalarOther")
def _where_other(condition, x, other):
    return _where(condition, x, _scalar_like(other, x))


@decomposes("where.ScalarSelf")
def _where_self(condition, x, other):
    return _where(condition, _scalar_like(x, other), other)


def _scalar_like(value, like):
    with _disable_current_modes():
        dtype = mica.result_type(mica.empty((1,), dtype=like.dtype, device="meta"), value)
    return aten.scalar_tensor.default(value, dtype=dtype, device=like.device)


def _where(condition, a, b):
    return aten.where.self(condition, a, b)
