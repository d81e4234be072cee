"""Arrays of NumPy within a captured graph: what x.numpy() gives there, and what arrays among the arguments are.

A captured array stands for the array that a promised tensor will be. NumPy hands it its functions (__array_ufunc__ and
__array_function__), and those that torch computes alike become calls of the graph. Everything else asks for the values:
the graph ends there, and NumPy computes with the array itself, whose memory is the tensor's.
"""

import operator
import sys

import mica
from mica._dynamo import _capture_names as _names
from mica._dynamo._array_functions import FUNCTIONS, UFUNCS
from mica.utils._pytree import tree_leaves, tree_map

__all__ = ["CapturedArray", "array_of", "as_arrays", "as_captured", "is_captured"]

_DTYPES = {"bool", "int8", "uint8", "int16", "int32", "int64", "float32", "float64", "complex64", "complex128"}
# Loops of whole numbers that torch does not compute as NumPy does: quotients by zero, and roots in small floats.
_OF_FLOATS = {"power", "remainder", "floor_divide", "reciprocal", "floor", "ceil", "trunc", "sign"}


def _numpy():
    import numpy

    return numpy


def is_captured(value):
    return type(value) is CapturedArray


def _dtype_of(tensor):
    return _numpy().dtype(str(tensor.dtype).rpartition(".")[2])


def array_of(tensor, force=False):
    """The captured array of a tensor; None where there is none."""
    name = str(tensor.dtype).rpartition(".")[2]
    if name not in _DTYPES or tensor.device.type != "cpu" or tensor.layout != mica.strided or tensor.is_conj():
        return None
    return None if tensor.requires_grad and not force else CapturedArray(tensor.detach())


def _torch_dtype(dtype):
    """torch's dtype for one of NumPy's; None where a graph has none for it."""
    name = _numpy().dtype(dtype).name
    return getattr(mica, name) if name in _DTYPES else None


class CapturedArray:
    """An array whose values a graph will have computed."""

    __slots__ = ("__weakref__", "_given", "_is_number", "_tensor")
    __array_priority__ = 1000.0
    __hash__ = None

    def __init__(self, tensor, given=None, is_number=False):
        for name, value in (("_tensor", tensor), ("_given", given), ("_is_number", is_number)):
            object.__setattr__(self, name, value)

    @property
    def __class__(self):
        """The class that isinstance sees: an array, or a number of NumPy's."""
        return _dtype_of(self._tensor).type if self._is_number else _numpy().ndarray

    # ---- values

    def _value(self):
        """The array itself. The recorded calls run first."""
        if self._given is None:
            capture = _names.active()
            array = self._tensor.numpy() if capture is None else capture.array_of(self._tensor)
            object.__setattr__(self, "_given", array[()] if self._is_number else array)
        elif (capture := _names.active()) is not None:
            capture.flush("NumPy asks for values", whole=False)
        return self._given

    def __array__(self, dtype=None, copy=None):
        numpy = _numpy()
        value = numpy.asarray(self._value())
        return value.copy() if copy else value if dtype is None else value.astype(dtype, copy=False)

    def _captured_tensor(self):
        """For torch.from_numpy."""
        return self._tensor.detach()

    def __getattr__(self, name):
        if name in _METHODS:
            return lambda *args, **kwargs: _called(name, self, args, kwargs)
        if name.startswith("__array_"):  # another way to the memory, which does not exist yet
            raise AttributeError(name)
        return getattr(self._value(), name)

    def __setattr__(self, name, value):
        setattr(self._value(), name, value)
        object.__setattr__(self, "_tensor", mica.from_numpy(self._given))

    def __reduce_ex__(self, protocol):
        return self._value().__reduce_ex__(protocol)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """A function of torch's that is given an array takes its tensor."""
        args, kwargs = tree_map(_tensor_for, (tuple(args), dict(kwargs or {})))
        return func(*args, **kwargs)

    # ---- what it is

    shape = property(
        lambda self: tuple(self._tensor.shape), lambda self, to: CapturedArray.__setattr__(self, "shape", to)
    )
    ndim = property(lambda self: self._tensor.dim())
    size = property(lambda self: self._tensor.numel())
    dtype = property(lambda self: _dtype_of(self._tensor))
    itemsize = property(lambda self: self._tensor.element_size())
    nbytes = property(lambda self: self.size * self.itemsize)
    strides = property(lambda self: tuple(n * self.itemsize for n in self._tensor.stride()))
    T = property(lambda self: self.transpose())

    @property
    def real(self):
        return CapturedArray(self._tensor.real if self._tensor.is_complex() else self._tensor.detach())

    @property
    def imag(self):
        tensor = self._tensor
        return CapturedArray(tensor.imag if tensor.is_complex() else mica.zeros_like(tensor))

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # ---- NumPy's functions

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        made = NotImplemented
        if method == "__call__" and not kwargs and ufunc.nout == 1 and _names.active() is not None:
            made = _of_ufunc(ufunc, inputs)
        if made is not NotImplemented:
            return made
        return getattr(ufunc, method)(*map(_plain, inputs), **_all_plain(kwargs))

    def __array_function__(self, func, types, args, kwargs):
        space = func.__module__.removeprefix("numpy").lstrip(".")
        name = f"{space}.{func.__name__}" if space else func.__name__
        if name in FUNCTIONS and _names.active() is not None:
            made = _of_function(FUNCTIONS[name], args, kwargs)
            if made is not NotImplemented:
                return made
        return func(*_all_plain(args), **_all_plain(kwargs))

    # ---- methods

    def transpose(self, *axes):
        axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        if len(axes or ()) == 2 and self.ndim == 2 and tuple(axes) == (0, 1):
            return CapturedArray(self._tensor.detach())
        return _called("transpose", self, (axes or None,), {})

    def reshape(self, *shape, **kwargs):
        return _called("reshape", self, (shape[0] if len(shape) == 1 else shape,), kwargs)

    def flatten(self, order="C"):
        return CapturedArray(self._tensor.reshape(-1).clone()) if order == "C" else self._value().flatten(order)

    def astype(self, dtype, order="K", casting="unsafe", subok=True, copy=True):
        wanted = _torch_dtype(dtype)
        # NumPy itself converts a float beyond the range of an integer.
        exact = (
            not self._tensor.is_floating_point() or wanted is None or wanted.is_floating_point or wanted == mica.bool
        )
        if wanted is None or casting != "unsafe" or order != "K" or self._tensor.is_complex() or not exact:
            return self._value().astype(dtype, order, casting, subok, copy)
        return CapturedArray(self._tensor.to(wanted, copy=copy), is_number=self._is_number)

    def dot(self, b):
        return _called("dot", self, (b,), {})

    def __getitem__(self, index):
        taken = _index(index)
        if taken is None or _names.active() is None:
            return self._value()[_all_plain(index)]
        made = self._tensor[taken]
        is_number = made.dim() == 0 and not any(part is Ellipsis for part in taken)
        return CapturedArray(made, is_number=is_number)

    def __setitem__(self, index, value):
        taken, number = _index(index), isinstance(value, int | float) and not isinstance(value, bool)
        fits = number and (self._tensor.is_floating_point() or isinstance(value, int))
        if is_captured(value) and value._tensor.dtype == self._tensor.dtype:
            fits, value = True, value._tensor
        if taken is None or not fits or _names.active() is None:
            self._value()[_all_plain(index)] = _plain(value)
        else:
            self._tensor[taken] = value


_METHODS = {"sum", "prod", "mean", "std", "var", "max", "min", "all", "any", "argmax", "argmin", "cumsum", "ravel",
            "squeeze", "swapaxes", "copy", "clip"}  # fmt: skip


def _called(name, array, args, kwargs):
    """A method of an array that is a function of NumPy's, too."""
    if _names.active() is not None:
        made = _of_function(FUNCTIONS[name], (array, *args), kwargs)
        if made is not NotImplemented:
            return made
    return getattr(array._value(), name)(*_all_plain(args), **_all_plain(kwargs))


def _tensor_for(value):
    return value._captured_tensor() if is_captured(value) else value


def _plain(value):
    return value._value() if is_captured(value) else value


def _all_plain(values):
    return tree_map(_plain, values)


def _as_tensor(value):
    """A tensor for an array, the value for another; NotImplemented for an array that a graph cannot hold."""
    numpy = _numpy()
    if is_captured(value):
        return value._tensor
    if type(value) is numpy.ndarray:
        return mica.from_numpy(value) if _fits(value) else NotImplemented
    if isinstance(value, numpy.generic):
        return NotImplemented
    return _torch_dtype(value) if isinstance(value, numpy.dtype) or _is_scalar_type(value) else value


def _is_scalar_type(value):
    return isinstance(value, type) and (issubclass(value, _numpy().generic) or value in (float, int, bool, complex))


def _of_function(function, args, kwargs):
    if "out" in kwargs or "where" in kwargs or "initial" in kwargs:
        return NotImplemented
    inner = tree_map(_as_tensor, (tuple(args), dict(kwargs)))
    if any(leaf is NotImplemented for leaf in tree_leaves(inner)):
        return NotImplemented
    args, kwargs = inner
    if kwargs.get("dtype", 0) is None:
        kwargs.pop("dtype")
    try:
        made = function(*args, **kwargs)
    # Torch's function does not take these arguments, so NumPy reports the error.
    except (TypeError, IndexError, RuntimeError):
        return NotImplemented
    if isinstance(made, list | tuple):
        return type(made)(CapturedArray(each) for each in made)
    return made if made is NotImplemented else CapturedArray(made, is_number=made.dim() == 0)


def _of_ufunc(ufunc, inputs):
    """The call in the dtypes of NumPy's loop."""
    numpy = _numpy()
    if ufunc.__name__ not in UFUNCS:
        return NotImplemented
    kinds, values = [], []
    for each in inputs:
        if is_captured(each):
            kinds.append(each.dtype)
            values.append(each._tensor)
        elif type(each) is numpy.ndarray and _fits(each):
            kinds.append(each.dtype)
            values.append(mica.from_numpy(each))
        elif type(each) in (int, float, complex, bool):
            kinds.append(type(each) if type(each) is not bool else numpy.dtype(bool))
            values.append(each)
        elif isinstance(each, numpy.generic) and each.dtype.name in _DTYPES:
            kinds.append(each.dtype)
            values.append(each.item())
        else:
            return NotImplemented
    try:
        *loop, result = ufunc.resolve_dtypes((*kinds, None))
    except TypeError:
        return NotImplemented  # NumPy's error
    wanted = [_torch_dtype(dtype) for dtype in (*loop, result)]
    if None in wanted or (ufunc.__name__ in _OF_FLOATS and not _computes_whole(ufunc, wanted, values)):
        return NotImplemented
    if ufunc.__name__ in ("subtract", "negative") and wanted[-1] == mica.bool:
        return NotImplemented
    values = [
        value.to(dtype) if isinstance(value, mica.Tensor) and value.dtype != dtype else value
        for value, dtype in zip(values, wanted, strict=False)
    ]
    made = getattr(mica, UFUNCS[ufunc.__name__])(*_in_order(ufunc, values, wanted))
    made = made if made.dtype == wanted[-1] else made.to(wanted[-1])
    return CapturedArray(made, is_number=made.dim() == 0)


def _computes_whole(ufunc, wanted, values):
    """Whether torch computes a loop as NumPy does: of floats, or a whole power that is not negative."""
    if wanted[0].is_floating_point:
        return True
    return ufunc.__name__ == "power" and type(values[1]) is int and values[1] >= 0


_TAKE_NUMBERS = {"add", "subtract", "multiply", "divide", "power", "greater", "greater_equal", "less", "less_equal",
                 "equal", "not_equal", "remainder", "floor_divide", "bitwise_and", "bitwise_or", "bitwise_xor"}  # fmt: skip


def _in_order(ufunc, values, wanted):
    """Arguments with a tensor first; where torch's function takes no number, a tensor in its place."""
    first_is_number = len(values) == 2 and not isinstance(values[0], mica.Tensor)
    if len(values) == 1 or (ufunc.__name__ in _TAKE_NUMBERS and not first_is_number):
        return values
    return [
        value if isinstance(value, mica.Tensor) else mica.full((), value, dtype=dtype)
        for value, dtype in zip(values, wanted, strict=False)
    ]


def _index(index):
    """An index for tensors, as a tuple; None where NumPy's has another meaning or torch's has none."""
    parts = []
    for part in index if isinstance(index, tuple) else (index,):
        if is_captured(part):
            if part._tensor.is_floating_point():
                return None
            part = part._tensor
        elif isinstance(part, bool) or not (part is None or part is Ellipsis or isinstance(part, int | slice)):
            return None
        parts.append(part)
    return tuple(parts)


def _operator(name, torchs=None, reflected=False, in_place=False):
    def apply(self, other):
        ufunc = getattr(_numpy(), name)
        if isinstance(other, mica.Tensor):  # a number of NumPy's is a tensor of no dimensions, which counts as a number
            mine = self._captured_tensor()
            return torchs(other, mine) if reflected else torchs(mine, other)
        return ufunc(other, self) if reflected else ufunc(self, other)

    def apply_in_place(self, other):
        ufunc, value = getattr(_numpy(), name), self._value()
        return ufunc(value, _plain(other), out=value) if not self._is_number else ufunc(value, _plain(other))

    return apply_in_place if in_place else apply


for _name, _ufunc in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor",
}.items():  # fmt: skip
    _torchs = getattr(operator, f"__{_name}__")
    setattr(CapturedArray, f"__{_name}__", _operator(_ufunc, _torchs))
    setattr(CapturedArray, f"__r{_name}__", _operator(_ufunc, _torchs, reflected=True))
    setattr(CapturedArray, f"__i{_name}__", _operator(_ufunc, in_place=True))
for _name, _ufunc in {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}.items():  # fmt: skip
    setattr(CapturedArray, f"__{_name}__", _operator(_ufunc, getattr(operator, _name)))
for _name, _ufunc in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
    setattr(CapturedArray, f"__{_name}__", lambda self, ufunc=_ufunc: getattr(_numpy(), ufunc)(self))
for _name in ("bool", "int", "float", "complex", "index", "repr", "str", "format", "contains", "divmod", "lshift",
              "rshift", "rlshift", "rrshift", "rdivmod", "dir"):  # fmt: skip
    setattr(
        CapturedArray,
        f"__{_name}__",
        lambda self, *args, name=f"__{_name}__": getattr(self._value(), name)(*map(_plain, args)),
    )


def _fits(array):
    """Whether an array can be an input of a graph as it is."""
    return (
        array.dtype.name in _DTYPES
        and array.dtype.isnative
        and array.flags.writeable
        and not any(stride % array.itemsize for stride in array.strides)
    )


def as_captured(values):
    """Arguments with captured arrays for arrays. The graph reads and writes their memory."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not any(type(leaf) is numpy.ndarray for leaf in tree_leaves(values)):
        return values
    known = {}

    def captured(value):
        if type(value) is not numpy.ndarray or not _fits(value):
            return value
        return known.setdefault(id(value), CapturedArray(mica.from_numpy(value), value))

    return tree_map(captured, values)


def as_arrays(values):
    """A result with arrays for captured ones."""
    return tree_map(_plain, values) if any(map(is_captured, tree_leaves(values))) else values
