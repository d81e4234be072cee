"""The array API standard (2024.12) over Mica's operations: what `x.__array_namespace__()` returns.

Names that mean the same in torch are torch's functions; the others are said here in the standard's words.
"""

from collections import namedtuple

import mica as _m
from mica import fft  # noqa: F401 - the standard's extension as it is
from mica._interop.array_sums import *  # noqa: F403
from mica._interop.array_sums import _axes

__array_api_version__ = "2024.12"

e, inf, nan, pi, newaxis = _m.e, _m.inf, _m.nan, _m.pi, None

_BOOL = (_m.bool,)
_SIGNED = (_m.int8, _m.int16, _m.int32, _m.int64)
_UNSIGNED = (_m.uint8, _m.uint16, _m.uint32, _m.uint64)
_REAL = (_m.float32, _m.float64)
_COMPLEX = (_m.complex64, _m.complex128)
_KINDS = {
    "bool": _BOOL,
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _REAL + _COMPLEX,
}

for _name in [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "bool",
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "exp",
    "expm1",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "square",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "matmul",
    "from_dlpack",
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "tril",
    "triu",
    "can_cast",
    "iinfo",
    "finfo",
    "broadcast_to",
    "where",
    "take_along_dim",
]:
    globals()[_name] = getattr(_m, _name)

bitwise_invert, equal = _m.bitwise_not, _m.eq
take_along_axis = globals().pop("take_along_dim")


# ---- elements


def _whole(function):
    """Rounding leaves integers as they are."""

    def rounded(x, /):
        return x.clone() if not x.is_floating_point() and not x.is_complex() else function(x)

    rounded.__name__ = rounded.__qualname__ = function.__name__
    return rounded


ceil, floor, trunc = _whole(_m.ceil), _whole(_m.floor), _whole(_m.trunc)


def round(x, /):
    if x.is_complex():
        return _m.complex(_m.round(x.real), _m.round(x.imag))
    return x.clone() if not x.is_floating_point() else _m.round(x)


def positive(x, /):
    return x.clone()


def clip(x, /, min=None, max=None):
    if min is None and max is None:
        return x.clone()
    return _m.clamp(x, min, max).to(x.dtype)


# ---- making arrays


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    if isinstance(obj, _m.Tensor):
        same = (dtype is None or obj.dtype == dtype) and (device is None or obj.device == _m.device(device))
        if copy is False and not same:
            raise ValueError("asarray: the array has another dtype or device, and no copy is allowed")
        return obj.clone() if same and copy else obj if same else obj.to(device=device, dtype=dtype)
    if copy is False and isinstance(obj, bool | int | float | complex | list | tuple):
        raise ValueError("asarray: Python's numbers cannot be taken without a copy")
    if copy:
        return _m.tensor(obj, dtype=dtype, device=device)
    return _m.as_tensor(obj, dtype=dtype, device=device)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    if stop is None:
        start, stop = 0, start
    if (step > 0 and stop <= start) or (step < 0 and stop >= start):
        fractional = float in map(type, (start, stop, step))
        return _m.empty(0, dtype=dtype or (_m.get_default_dtype() if fractional else _m.int64), device=device)
    return _m.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape, *, dtype=None, device=None):
    return _m.empty(shape, dtype=dtype, device=device)


def zeros(shape, *, dtype=None, device=None):
    return _m.zeros(shape, dtype=dtype, device=device)


def ones(shape, *, dtype=None, device=None):
    return _m.ones(shape, dtype=dtype, device=device)


def full(shape, fill_value, *, dtype=None, device=None):
    return _m.full(shape if isinstance(shape, tuple | list) else (shape,), fill_value, dtype=dtype, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    n_cols = n_rows if n_cols is None else n_cols
    result = _m.zeros(n_rows, n_cols, dtype=dtype, device=device)
    if -n_rows < k < n_cols:
        result.diagonal(k).fill_(1)
    return result


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    if endpoint:
        return _m.linspace(start, stop, num, dtype=dtype, device=device)
    return _m.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]


def meshgrid(*arrays, indexing="xy"):
    return list(_m.meshgrid(*arrays, indexing=indexing))


# ---- dtypes


def astype(x, dtype, /, *, copy=True, device=None):
    return x.to(device=device or x.device, dtype=dtype, copy=copy)


def isdtype(dtype, kind):
    if isinstance(kind, tuple):
        return True in [isdtype(dtype, k) for k in kind]
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: unknown kind {kind!r}, known are {sorted(_KINDS)}")
        return dtype in _KINDS[kind]
    return dtype == kind


def result_type(*arrays_and_dtypes):
    if not arrays_and_dtypes:
        raise TypeError("result_type: at least one array or dtype is needed")
    result = None
    for x in arrays_and_dtypes:
        dtype = x if isinstance(x, _m.dtype) else getattr(x, "dtype", None)
        if dtype is not None:
            result = dtype if result is None else _m.promote_types(result, dtype)
    if result is None:
        return (
            _m.result_type(*arrays_and_dtypes) if len(arrays_and_dtypes) == 2 else _m.tensor(arrays_and_dtypes[0]).dtype
        )
    return result


# ---- shapes


def broadcast_arrays(*arrays):
    return list(_m.broadcast_tensors(*arrays))


def concat(arrays, /, *, axis=0):
    if axis is None:
        return _m.cat([a.flatten() for a in arrays])
    return _m.cat(list(arrays), dim=axis)


def expand_dims(x, /, *, axis=0):
    return x.unsqueeze(axis)


def flip(x, /, *, axis=None):
    return x.flip(_axes(axis, x.ndim))


def moveaxis(x, source, destination, /):
    return _m.movedim(x, source, destination)


def permute_dims(x, /, axes):
    return x.permute(axes)


def repeat(x, repeats, /, *, axis=None):
    return _m.repeat_interleave(x, repeats, dim=axis)


def reshape(x, /, shape, *, copy=None):
    return x.reshape(shape, copy=copy)


def roll(x, /, shift, *, axis=None):
    return _m.roll(x, shift) if axis is None else _m.roll(x, shift, axis)


def squeeze(x, /, axis):
    for a in _axes(axis, x.ndim):
        if x.shape[a] != 1:
            raise ValueError(f"squeeze: dimension {a} has size {x.shape[a]}, not 1")
    return x.squeeze(_axes(axis, x.ndim))


def stack(arrays, /, *, axis=0):
    return _m.stack(list(arrays), dim=axis)


def tile(x, repetitions, /):
    return _m.tile(x, repetitions)


def unstack(x, /, *, axis=0):
    return x.unbind(axis)


# ---- searching, sorting, sets


def take(x, indices, /, *, axis=None):
    if axis is None:
        if x.ndim != 1:
            raise ValueError("take: axis must be given for arrays of several dimensions")
        axis = 0
    return _m.index_select(x, axis, indices)


def argmax(x, /, *, axis=None, keepdims=False):
    return _m.argmax(x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    return _m.argmin(x, axis, keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return sum(x != 0, axis=axis, keepdims=keepdims, dtype=_m.int64)


def nonzero(x, /):
    return tuple(_m.nonzero(x, as_tuple=True))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    return _m.searchsorted(x1, x2, side=side, sorter=sorter)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return _m.sort(x, dim=axis, descending=descending, stable=stable).values


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return _m.sort(x, dim=axis, descending=descending, stable=stable).indices


_UniqueAll = namedtuple("UniqueAllResult", ["values", "indices", "inverse_indices", "counts"])
_UniqueCounts = namedtuple("UniqueCountsResult", ["values", "counts"])
_UniqueInverse = namedtuple("UniqueInverseResult", ["values", "inverse_indices"])


def unique_all(x, /):
    values, inverse, counts = _m.unique(x, return_inverse=True, return_counts=True)
    places = _m.arange(x.numel(), device=x.device).flip(0)
    first = _m.empty(values.numel(), dtype=_m.int64, device=x.device)
    first.scatter_reduce_(0, inverse.flatten().flip(0), places, "amin", include_self=False)
    return _UniqueAll(values, first, inverse.reshape(x.shape), counts)


def unique_counts(x, /):
    return _UniqueCounts(*_m.unique(x, return_counts=True))


def unique_inverse(x, /):
    values, inverse = _m.unique(x, return_inverse=True)
    return _UniqueInverse(values, inverse.reshape(x.shape))


def unique_values(x, /):
    return _m.unique(x)


# ---- what there is


class _Info:
    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self):
        return _m.get_default_device()

    def default_dtypes(self, *, device=None):
        real = _m.get_default_dtype()
        complex_ = _m.complex128 if real == _m.float64 else _m.complex64
        return {"real floating": real, "complex floating": complex_, "integral": _m.int64, "indexing": _m.int64}

    def dtypes(self, *, device=None, kind=None):
        known = _BOOL + _KINDS["numeric"]
        return {str(d).split(".")[-1]: d for d in known if kind is None or isdtype(d, kind)}

    def devices(self):
        beside = _m.accelerator.current_accelerator()
        return [_m.device("cpu"), *(_m.device(beside.type, i) for i in range(_m.accelerator.device_count()))]


def __array_namespace_info__():
    return _Info()
