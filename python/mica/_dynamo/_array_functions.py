"""NumPy's functions as calls of torch, for arrays within a captured graph (arrays.py).

Each has NumPy's parameters and NumPy's dtypes. Where a call asks for more than torch's has, the function returns
NotImplemented, and NumPy itself computes it.
"""

import mica

__all__ = ["FUNCTIONS", "UFUNCS"]

# NumPy's name of a ufunc -> torch's function, where torch computes NumPy's loop of dtypes in the same way.
UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow", "negative": "neg",
    "positive": "positive", "absolute": "abs", "sqrt": "sqrt", "square": "square", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos",
    "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "hypot": "hypot",
    "maximum": "maximum", "minimum": "minimum", "fmax": "fmax", "fmin": "fmin", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "equal": "eq",
    "not_equal": "ne", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite", "logical_and": "logical_and",
    "logical_or": "logical_or", "logical_not": "logical_not", "logical_xor": "logical_xor", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "invert": "bitwise_not", "sign": "sign",
    "reciprocal": "reciprocal", "matmul": "matmul", "remainder": "remainder", "floor_divide": "floor_divide",
    "logaddexp": "logaddexp", "conjugate": "conj_physical",
}  # fmt: skip

FUNCTIONS = {}  # by NumPy's name, below numpy


def _named(*names):
    def register(function):
        for name in names:
            FUNCTIONS[name] = function
        return function

    return register


def _dims(a, axis):
    """Dimensions to reduce over; all of them for None."""
    if axis is None:
        return tuple(range(a.dim()))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _widened(a):
    """The integers in the dtype in which NumPy adds them up; None where torch lacks that dtype."""
    if a.dtype in (mica.bool, mica.int8, mica.int16, mica.int32, mica.int64):
        return a.to(mica.int64)
    return None if a.dtype in (mica.uint8, mica.uint16, mica.uint32, mica.uint64) else a


@_named("sum")
def _sum(a, axis=None, *, keepdims=False):
    a = _widened(a)
    return NotImplemented if a is None else a.sum(_dims(a, axis), keepdim=keepdims) if a.dim() else a.clone()


@_named("prod")
def _prod(a, axis=None, *, keepdims=False):
    a = _widened(a)
    if a is None or keepdims or not (axis is None or isinstance(axis, int)):
        return NotImplemented
    return a.prod() if axis is None else a.prod(axis)


@_named("mean")
def _mean(a, axis=None, *, keepdims=False):
    if not (a.is_floating_point() or a.is_complex()):
        a = a.to(mica.float64)
    return NotImplemented if a.dtype == mica.float16 else a.mean(_dims(a, axis), keepdim=keepdims)


def _spread(name):
    def spread(a, axis=None, *, ddof=0, keepdims=False):
        if a.is_complex() or a.dtype == mica.float16:
            return NotImplemented
        a = a if a.is_floating_point() else a.to(mica.float64)
        return getattr(a, name)(_dims(a, axis), correction=ddof, keepdim=keepdims)

    return spread


_named("std")(_spread("std"))
_named("var")(_spread("var"))


def _extreme(name):
    def extreme(a, axis=None, *, keepdims=False):
        if a.is_complex() or a.numel() == 0:
            return NotImplemented
        return getattr(a, name)(_dims(a, axis), keepdim=keepdims)

    return extreme


_named("max", "amax")(_extreme("amax"))
_named("min", "amin")(_extreme("amin"))


def _truth(name):
    def truth(a, axis=None, *, keepdims=False):
        a = a != 0 if a.dtype != mica.bool else a
        return getattr(a, name)(_dims(a, axis), keepdim=keepdims)

    return truth


_named("all")(_truth("all"))
_named("any")(_truth("any"))


def _place(name):
    def place(a, axis=None, *, keepdims=False):
        if a.is_complex() or a.numel() == 0 or (axis is None and keepdims):
            return NotImplemented
        return getattr(a, name)() if axis is None else getattr(a, name)(axis, keepdim=keepdims)

    return place


_named("argmax")(_place("argmax"))
_named("argmin")(_place("argmin"))


@_named("cumsum")
def _cumsum(a, axis=None):
    a = _widened(a)
    return NotImplemented if a is None else a.reshape(-1).cumsum(0) if axis is None else a.cumsum(axis)


# ---- shapes


@_named("reshape")
def _reshape(a, shape, *, order="C"):
    return a.reshape(shape) if order == "C" else NotImplemented


@_named("transpose")
def _transpose(a, axes=None):
    return a.permute(tuple(range(a.dim()))[::-1] if axes is None else tuple(axes))


@_named("ravel")
def _ravel(a, order="C"):
    return a.reshape(-1) if order == "C" else NotImplemented


@_named("squeeze")
def _squeeze(a, axis=None):
    if axis is None:
        return a.squeeze()
    if any(a.shape[d] != 1 for d in _dims(a, axis)):
        return NotImplemented  # NumPy's error
    return a.squeeze(_dims(a, axis))


@_named("expand_dims")
def _expand_dims(a, axis):
    return a.unsqueeze(axis) if isinstance(axis, int) else NotImplemented


@_named("swapaxes")
def _swapaxes(a, axis1, axis2):
    return a.transpose(axis1, axis2)


@_named("moveaxis")
def _moveaxis(a, source, destination):
    return a.movedim(source, destination)


@_named("flip")
def _flip(m, axis=None):
    return m.flip(_dims(m, axis))


@_named("roll")
def _roll(a, shift, axis=None):
    return a.roll(shift, axis)


@_named("copy")
def _copy(a, order="K"):
    return a.clone() if order in ("K", "C") else NotImplemented


@_named("broadcast_to")
def _broadcast_to(array, shape):
    return array.expand(shape)


@_named("meshgrid")
def _meshgrid(*xi, indexing="xy"):
    if any(x.dim() > 1 for x in xi):
        xi = [x.reshape(-1) for x in xi]
    return [each.clone() for each in mica.meshgrid(*xi, indexing=indexing)]


@_named("fft.fftshift")
def _fftshift(x, axes=None):
    return mica.fft.fftshift(x, axes)


@_named("fft.ifftshift")
def _ifftshift(x, axes=None):
    return mica.fft.ifftshift(x, axes)


# ---- several arrays


def _of_one_dtype(arrays):
    return all(a.dtype == arrays[0].dtype for a in arrays)


@_named("concatenate")
def _concatenate(arrays, axis=0):
    arrays = list(arrays)
    if not arrays or not _of_one_dtype(arrays) or axis is None:
        return NotImplemented
    return mica.cat(arrays, axis)


@_named("stack")
def _stack(arrays, axis=0):
    arrays = list(arrays)
    return mica.stack(arrays, axis) if arrays and _of_one_dtype(arrays) else NotImplemented


def _by_rows(name):
    def stacked(tup):
        arrays = list(tup)
        return getattr(mica, name)(arrays) if arrays and _of_one_dtype(arrays) else NotImplemented

    return stacked


for _name in ("vstack", "hstack", "dstack"):
    _named(_name)(_by_rows(_name))


@_named("where")
def _where(condition, x=None, y=None):
    both = isinstance(x, mica.Tensor) and isinstance(y, mica.Tensor)
    if x is None or y is None or not isinstance(condition, mica.Tensor):
        return NotImplemented
    if both and x.dtype != y.dtype:
        return NotImplemented
    if not both:
        array, number = (x, y) if isinstance(x, mica.Tensor) else (y, x)
        if not isinstance(array, mica.Tensor) or not (
            isinstance(number, int) or (isinstance(number, float) and array.is_floating_point())
        ):
            return NotImplemented
    return mica.where(condition != 0 if condition.dtype != mica.bool else condition, x, y)


@_named("clip")
def _clip(a, a_min=None, a_max=None):
    numbers = [n for n in (a_min, a_max) if n is not None]
    if not numbers or any(isinstance(n, mica.Tensor) for n in numbers):
        return NotImplemented
    if any(isinstance(n, float) for n in numbers) and not a.is_floating_point():
        return NotImplemented
    return a.clamp(a_min, a_max)


@_named("dot")
def _dot(a, b):
    if not isinstance(b, mica.Tensor) or a.dtype != b.dtype or not 1 <= a.dim() <= 2 or not 1 <= b.dim() <= 2:
        return NotImplemented
    return a @ b


@_named("take_along_axis")
def _take_along_axis(arr, indices, axis=-1):
    return NotImplemented if axis is None else mica.take_along_dim(arr, indices, axis)


@_named("linalg.norm")
def _norm(x, ord=None, axis=None, *, keepdims=False):
    if not x.is_floating_point() or ord is not None or not (axis is None or isinstance(axis, int)):
        return NotImplemented
    return mica.linalg.vector_norm(x, 2, _dims(x, axis), keepdim=keepdims)


def _like(make):
    def like(a, dtype=None, order="K", subok=True, shape=None):
        return make(a, dtype=dtype) if order == "K" and shape is None else NotImplemented

    return like


for _name in ("ones_like", "zeros_like", "empty_like"):
    _named(_name)(_like(getattr(mica, _name)))


@_named("full_like")
def _full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None):
    if order != "K" or shape is not None or not isinstance(fill_value, int | float):
        return NotImplemented
    return mica.full_like(a, fill_value, dtype=dtype)
